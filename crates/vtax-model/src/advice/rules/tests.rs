use strum::VariantArray;

use super::*;
use crate::{
    advice::requirements::{RequiredAvailability, RequiredDevice, RequiredMigration, RequirementOptions},
    method::{DomainKind, Family, Isolation},
};

/// A machine like that of the article: two root complexes, four slots, and NICs whose functions don't migrate.
pub(in crate::advice) fn machine() -> Inventory {
    Inventory {
        functions: Some(63),
        devices: Some(4),
        root_complexes: Some(2),
        wires: Some(2),
        driver: Some("igb".to_owned()),
        failover: Some(false),
        unavailable: Vec::new(),
    }
}

fn answers(variant: MethodVariant, options: &RequirementOptions, inventory: &Inventory) -> Vec<RuleAnswer> {
    let requirements = Requirements::new(options.clone()).expect("good options");
    let candidate = Candidate { variant, requirements: &requirements, inventory };
    RULES.iter().map(|rule| (rule.judge)(&candidate)).collect()
}

fn exclusions(variant: MethodVariant, options: &RequirementOptions, inventory: &Inventory) -> Vec<Exclusion> {
    let excluded = |answer| if let RuleAnswer::Excludes(exclusion) = answer { Some(exclusion) } else { None };
    answers(variant, options, inventory).into_iter().filter_map(excluded).collect()
}

/// The families that remain, in the order of the article's table.
fn remaining(options: RequirementOptions) -> Vec<Family> {
    let is_admitted = |family: &Family| {
        let usual = family.methods()[0].variants()[0];
        exclusions(usual, &options, &machine()).is_empty()
    };
    Family::ALL.into_iter().filter(is_admitted).collect()
}

/// "What's up with LDoms", part 11: for each requirement, the families whose use the table advises against drop out.
#[test]
fn the_published_table_follows_from_the_rules() {
    use Family::{DirectIo, RootDomains, SrIov, VirtualIo};
    let given = RequirementOptions::default;
    let migrate = |migrate| RequirementOptions { migrate: Some(migrate), ..given() };
    let guests = |guests| RequirementOptions { guests: Some(guests), ..given() };
    let device = |device| RequirementOptions { device: vec![device], ..given() };
    let isolation = |isolation| RequirementOptions { isolation: Some(isolation), ..given() };
    let cases = [
        // Live migration: only virtual I/O allows it.
        (migrate(RequiredMigration::Live), vec![VirtualIo]),
        (migrate(RequiredMigration::No), vec![SrIov, DirectIo, RootDomains, VirtualIo]),
        // Dynamic reconfiguration: virtual I/O and SR-IOV.
        (RequirementOptions { hotplug: true, ..given() }, vec![SrIov, VirtualIo]),
        // Dependency on the root domain: SR-IOV and direct I/O. Root domains are independent; service domains can be
        // redundant.
        (
            RequirementOptions { availability: Some(RequiredAvailability::Failover), ..given() },
            vec![RootDomains, VirtualIo],
        ),
        // Number: root domains by the root complexes, direct I/O by the slots, SR-IOV for a larger number of guests,
        // virtual I/O almost without a limit.
        (guests(2), vec![SrIov, DirectIo, RootDomains, VirtualIo]),
        (guests(4), vec![SrIov, DirectIo, VirtualIo]),
        (guests(48), vec![SrIov, VirtualIo]),
        (guests(400), vec![VirtualIo]),
        // No hardware sharing: direct I/O has a dedicated slot, root domains share nothing at all.
        (isolation(Isolation::Device), vec![DirectIo, RootDomains]),
        (isolation(Isolation::RootComplex), vec![RootDomains]),
        // All types of cards: direct I/O and root domains; of virtual functions, what the card offers.
        (device(RequiredDevice::Pci), vec![SrIov, DirectIo, RootDomains]),
        (device(RequiredDevice::Disk), vec![SrIov, DirectIo, RootDomains, VirtualIo]),
    ];
    for (options, expected) in cases {
        assert_eq!(remaining(options.clone()), expected, "{options:?}");
    }
}

/// Each requirement alone, as strict as it can be.
fn strict() -> Vec<RequirementOptions> {
    let given = RequirementOptions::default;
    let isolation = |isolation: &Isolation| RequirementOptions { isolation: Some(*isolation), ..given() };
    let device = |device: &RequiredDevice| RequirementOptions { device: vec![*device], ..given() };
    let others = [
        RequirementOptions { guests: Some(5000), ..given() },
        RequirementOptions { migrate: Some(RequiredMigration::Live), ..given() },
        RequirementOptions { availability: Some(RequiredAvailability::Failover), ..given() },
        RequirementOptions { hotplug: true, ..given() },
        RequirementOptions { vlan: true, ..given() },
        RequirementOptions { rate_limit: Some("1G".parse().expect("a rate")), ..given() },
    ];
    let levels = Isolation::VARIANTS.iter().map(isolation);
    levels.chain(RequiredDevice::VARIANTS.iter().map(device)).chain(others).collect()
}

#[test]
fn every_exclusion_is_in_the_table_of_capabilities() {
    let mut seen = std::collections::BTreeSet::new();
    for (variant, options) in pairs() {
        for exclusion in exclusions(variant, &options, &machine()) {
            let what = format!("{variant}: {exclusion:?}");
            seen.insert(exclusion.requirement);
            let answers = variant.capabilities().answers();
            let from_table = answers.iter().any(|answer| answer.reason == exclusion.reason);
            let of_driver = exclusion.object.as_deref() == Some("igb");
            let of_zone = exclusion.requirement == Requirement::Isolation && variant.domain != DomainKind::Guest;
            assert!(from_table || of_driver || of_zone, "{what}");
        }
    }
    assert_eq!(seen.len(), RULES.len(), "{seen:?}");
}

#[test]
fn a_method_excluded_for_its_vlan_or_rate_is_refused_in_lab_files() {
    for (variant, options) in pairs() {
        for exclusion in exclusions(variant, &options, &machine()) {
            let option = match exclusion.requirement {
                Requirement::Vlan => "vlan",
                Requirement::RateLimit => "rate",
                _ => continue,
            };
            assert_eq!(variant.capabilities().refuses(option), Some(exclusion.reason.as_str()), "{variant}");
        }
    }
}

fn pairs() -> Vec<(MethodVariant, RequirementOptions)> {
    let of = |variant| strict().into_iter().map(move |options| (variant, options));
    MethodVariant::all().into_iter().flat_map(of).collect()
}

#[test]
fn a_relaxed_requirement_no_longer_excludes() {
    for (variant, options) in pairs() {
        for exclusion in exclusions(variant, &options, &machine()) {
            let Some(to) = exclusion.relaxed else { continue };
            let requirements =
                Requirements::new(options.clone()).and_then(|all| all.relaxed(to)).expect("good options");
            let again = exclusions(variant, requirements.options(), &machine());
            assert_eq!(again, [], "{variant}: {to}");
        }
    }
}

#[test]
fn the_driver_decides_about_virtual_functions() {
    let live = RequirementOptions { migrate: Some(RequiredMigration::Live), ..RequirementOptions::default() };
    let of = |driver: Option<&str>| {
        let inventory = Inventory { driver: driver.map(str::to_owned), ..machine() };
        let function =
            MethodVariant { method: crate::method::IoMethod::SrIov, domain: DomainKind::Guest, virtio: None };
        answers(function, &live, &inventory).swap_remove(0)
    };
    assert!(matches!(of(Some("mlx5_core")), RuleAnswer::AdmitsIf(condition) if condition.contains("mlx5_vfio_pci")));
    assert!(matches!(of(None), RuleAnswer::Depends(reason) if reason.starts_with("live migration: of the drivers")));
    let RuleAnswer::Excludes(Exclusion { reason, object, .. }) = of(Some("igb")) else { panic!("igb cannot") };
    assert_eq!((reason.as_str(), object.as_deref()), ("virtual functions of igb do not migrate", Some("igb")));
}

#[test]
fn unknown_hardware_is_neither_enough_nor_too_little() {
    let many = RequirementOptions { guests: Some(12), ..RequirementOptions::default() };
    for variant in MethodVariant::all() {
        let answers = answers(variant, &many, &Inventory::default());
        let is_open = answers
            .iter()
            .any(|answer| matches!(answer, RuleAnswer::Depends(reason) if reason.contains("vtax io list")));
        let is_counted =
            matches!(variant.capabilities().answer(Capability::Count).word, "VFs" | "devices" | "complexes" | "wires");
        assert_eq!(is_open, is_counted, "{variant}: {answers:?}");
    }
}

#[test]
fn a_count_names_what_there_is() {
    let many = RequirementOptions { guests: Some(12), ..RequirementOptions::default() };
    let roots = MethodVariant { method: crate::method::IoMethod::RootDomain, domain: DomainKind::Guest, virtio: None };
    let exclusion = exclusions(roots, &many, &machine()).swap_remove(0);
    assert_eq!(
        (exclusion.required.as_str(), exclusion.object.as_deref(), exclusion.relaxed),
        ("12 guests", Some("2 free root complexes"), Some(RelaxedTo::Guests(2)))
    );
    let none = Inventory { root_complexes: Some(0), ..machine() };
    assert_eq!(exclusions(roots, &many, &none).swap_remove(0).relaxed, None);
}
