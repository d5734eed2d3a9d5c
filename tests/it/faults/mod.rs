//! Whatever is cut, killed, frozen or emptied on the way: one effect or an honest `unknown`.

mod cut_postgres;
mod cut_rabbitmq;
mod own_servers;
mod stage;
