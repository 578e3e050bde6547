//! End-to-end tests of directory trees and lists of files, against real servers and scripted malicious listings.
//! no real server does.

mod ftp_trees;
mod get_trees;
mod hostile_ftp_listings;
mod hostile_listings;
mod put_trees;
mod resuming;
mod url_lists;
