//! Whatever is cut, killed, frozen or emptied on the way: one effect or an honest `unknown`.

mod own_servers;
