//! Source of a run that starts or is resumed, and its requirements on this machine.

use std::collections::BTreeSet;

use miette::{Context, bail};
use vtax_lab::{Lifetime, World};
use vtax_model::{
    endpoint::{Control, Endpoint},
    options::CongestionControl,
    run::RunReadings,
    study::{Study, StudyDisks},
};
use vtax_sys::sock::{NoCongestionControl, check_congestion_control};

use super::{measure::MeasureRequest, options::ChangedStudy, steps::check_rules};
use crate::{
    job::{Conditions, NewRun},
    stop::{Blamed, Stop},
};

pub(crate) enum RunSource {
    Study(Box<ChangedStudy>),
    /// Tests between two endpoints, and their study for any path, because the path isn't known yet.
    Measure {
        asked: Box<MeasureRequest>,
        anywhere: Box<Study>,
    },
    Old(Box<RunReadings>),
}

impl RunSource {
    /// Returns a new run. Refuses tests that can't be measured anywhere.
    pub(crate) fn begin(new: &NewRun, conditions: &Conditions) -> Result<RunSource, Stop> {
        let source = match new {
            NewRun::Study { study, changes } => RunSource::Study(Box::new(changes.apply(Study::clone(study))?)),
            NewRun::Measure(asked) => {
                RunSource::Measure { asked: asked.clone(), anywhere: Box::new(asked.anywhere()?) }
            }
            NewRun::Disks(asked) => RunSource::Study(Box::new(asked.wanted()?)),
        };
        conditions.check_pins(source.study()).or_input()?;
        Ok(source)
    }

    pub(super) fn study(&self) -> &Study {
        match self {
            RunSource::Study(wanted) => &wanted.study,
            RunSource::Measure { anywhere, .. } => anywhere,
            RunSource::Old(run) => &run.header.study,
        }
    }
}

/// Refuses rules named by tuning steps and congestion controls that this vtax or this kernel lacks. Other machines
/// report theirs when a test begins.
pub(super) fn check_here(study: &Study) -> miette::Result<()> {
    check_rules(&study.steps)?;
    let names: BTreeSet<CongestionControl> =
        study.cells.iter().filter_map(|cell| cell.options().socket.congestion).collect();
    let builds = study.is_in_lab();
    let is_here = |endpoint: &Endpoint| match &endpoint.control {
        Control::Local | Control::Zone { .. } | Control::Namespace(_) => true,
        Control::Domain(end) => end.is_primary(),
        Control::Ssh(_) | Control::Libvirt { .. } | Control::Pod(_) => false,
    };
    for name in names.into_iter().filter(|_| builds || study.endpoints().iter().any(is_here)) {
        match check_congestion_control(name) {
            // In a lab an unprivileged user is root, and may use each of them.
            Err(NoCongestionControl { source, .. }) if source.is_permission() && builds => {}
            Err(NoCongestionControl { source, available, .. }) if !source.is_permission() => bail!(
                code = "no-congestion-control",
                "--congestion {name}: no such congestion control in this kernel; available: {available}; \
                 use one of these, or load the module tcp_{name}"
            ),
            checked => checked.with_context(|| format!("--congestion {name}"))?,
        }
    }
    Ok(())
}

/// Gets the privilege to build a lab or to enter one. Endpoints outside of labs need no privilege, nor do disks that
/// the user may open.
pub(super) fn world(study: &Study) -> Result<Option<World>, Stop> {
    let are_here = |disks: &StudyDisks| disks.rows.iter().all(|row| row.disks.is_here());
    if study.disks().is_some_and(are_here) && !study.has_guests_disks() {
        return World::without_privilege().map(Some).or_infrastructure();
    }
    let in_lab = |control: &Control| matches!(control, Control::Zone { .. } | Control::Domain(_));
    let guarded = study.guarded().iter().flat_map(|path| [&path.initiator, &path.responder]);
    let mut controls = study.endpoints().iter().map(|endpoint| &endpoint.control).chain(guarded);
    match study.is_in_lab() || controls.any(in_lab) {
        true => World::enter(Lifetime::Ephemeral).map(Some).or_infrastructure(),
        false => Ok(None),
    }
}
