//! Endpoints in labs.

use std::sync::Arc;

use vtax_lab::{Lab, LabEndpoint};

/// An endpoint of a lab: a host on one of its wires, a zone or a guest.
#[derive(Clone)]
pub(in crate::study::ends) struct LabPlace {
    pub(in crate::study::ends) lab: Arc<Lab>,
    pub(in crate::study::ends) endpoint: LabEndpoint,
}
