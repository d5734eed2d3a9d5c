//! Whatever is cut, killed, frozen or emptied on the way: one effect or an honest `unknown`.

mod cut_postgres;
mod cut_rabbitmq;
mod killed;
mod lost_broker;
mod own_servers;
mod restarts;
mod stage;
mod young_queue;
