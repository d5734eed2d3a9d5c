//! What is promised about work that a provider finishes later, a module each.
