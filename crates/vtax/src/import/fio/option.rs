//! The options of a job: its own and the global ones.
//!
//! An option is part of the cell, or does not affect the measurement, or is refused by its name. So a future option of
//! fio is refused, too.

use vtax_model::units::ByteSize;

use super::Json;

/// Options that are part of the cell, or that are checked individually.
const OF_THE_CELL: &str = "bs blocksize buffered direct filename iodepth ioengine kb_base nrfiles numjobs pingpong proto \
                           protocol readwrite rw rwmixread rwmixwrite size unified_rw_reporting";

/// Options of the duration, the files' location and creation, the CPUs and the output.
const WITHOUT_EFFECT: &str = "allow_file_create allow_mounted_write allrandrepeat block_error_percentiles bwavgtime \
    clat_percentiles clocksource cpumask cpus_allowed cpus_allowed_policy create_fsync create_on_open create_serialize \
    description directory disable_bw disable_bw_measurement disable_clat disable_slat disk_util end_fsync error_dump \
    exec_postrun exec_prerun exit_what exitall exitall_on_error fadvise_hint fallocate filename_format fsync_on_close \
    group_reporting gtod_cpu hostname hugepage-size interface invalidate io_limit io_size iomem iopsavgtime lat_percentiles \
    listen lockmem log_alternate_epoch log_alternate_epoch_clock_id log_avg_msec log_compression log_compression_cpus \
    log_entries log_hist_coarseness log_hist_msec log_max_value log_offset log_prio log_store_compressed log_unix_epoch \
    loops max_latency mem name new_group nice nodelay norandommap numa_cpu_nodes numa_mem_policy number_ios overwrite \
    per_job_logs percentile_list port prio prioclass ramp_time random_generator randrepeat randseed refill_buffers runtime \
    scramble_buffers significant_figures slat_percentiles softrandommap ss ss_dur ss_ramp startdelay stats steadystate \
    steadystate_duration steadystate_ramp_time stonewall thread time_based timeout ttl unique_filename unit_base unlink \
    unlink_each_loop wait_for wait_for_previous write_bw_log write_hist_log write_iops_log write_lat_log";

/// Values that are fio's defaults.
const USUAL: [(&str, &str); 8] = [
    ("file_service_type", "roundrobin"),
    ("io_submit_mode", "inline"),
    ("iodepth_batch", "1"),
    ("iodepth_batch_complete", "1"),
    ("iodepth_batch_complete_min", "1"),
    ("percentage_random", "100"),
    ("random_distribution", "random"),
    ("zonemode", "none"),
];

#[derive(Debug)]
pub(in super::super) struct FioOptions<'a> {
    global: &'a Json,
    own: &'a Json,
}

impl<'a> FioOptions<'a> {
    pub(super) fn of(document: &'a Json, job: &'a Json) -> FioOptions<'a> {
        FioOptions { global: &document["global options"], own: &job["job options"] }
    }

    pub(in super::super) fn get(&self, name: &str) -> Option<&'a str> {
        self.own[name].as_str().or(self.global[name].as_str())
    }

    /// Returns an option that has several names.
    pub(in super::super) fn any(&self, names: &[&str]) -> Option<&'a str> {
        names.iter().find_map(|name| self.get(name))
    }

    /// Returns the number of the job's files. Each `filename=` adds to those before it.
    pub(in super::super) fn targets(&self) -> Result<usize, String> {
        let names = self.global.all("filename").chain(self.own.all("filename")).filter_map(Json::as_str);
        match (names.map(files).sum::<usize>(), self.get("nrfiles")) {
            (0, None) => Ok(1),
            (0, Some(count)) => count.parse::<usize>().map_err(|_| format!("its nrfiles `{count}` is not a number")),
            (named, _) => Ok(named),
        }
    }

    /// Returns a size as fio reads it, such as `64k`. With `kb_base=1024`, the default, k is 1,024 and Ki 1,000.
    pub(in super::super) fn size(&self, text: &str) -> Option<ByteSize> {
        let (base, other) = if self.get("kb_base") == Some("1000") { (1000_u64, 1024) } else { (1024, 1000) };
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let suffix = text[digits.len()..].to_ascii_lowercase();
        let suffix = suffix.strip_suffix('b').unwrap_or(&suffix);
        let (prefix, base) = suffix.strip_suffix('i').map_or((suffix, base), |prefix| (prefix, other));
        let power = ["", "k", "m", "g", "t", "p"].iter().position(|known| *known == prefix)?;
        let size = digits.parse::<u64>().ok()?.checked_mul(base.pow(power as u32))?;
        (size > 0 && size <= 1 << 50).then_some(ByteSize(size))
    }

    /// Refuses options that change the test to one that vtax could not run.
    pub(super) fn check(&self) -> Result<(), String> {
        self.check_reporting()?;
        let all = self.global.entries().iter().chain(self.own.entries());
        let mut set = all.filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)));
        match set.find(|(name, value)| !is_allowed(name, value)) {
            Some((name, value)) => {
                let set = if value.is_empty() { name.to_owned() } else { format!("{name}={value}") };
                Err(format!(
                    "it ran with `{set}`, which vtax does not support: only runs without that option can be imported"
                ))
            }
            None => Ok(()),
        }
    }

    /// Accepts `both`, with which there are reads and writes as well as their sum.
    fn check_reporting(&self) -> Result<(), String> {
        match self.get("unified_rw_reporting") {
            None | Some("none" | "0" | "both" | "2") => Ok(()),
            Some(other) => Err(format!(
                "it ran with `unified_rw_reporting={other}`, which adds up reads and writes: run fio without that option"
            )),
        }
    }
}

fn is_allowed(name: &str, value: &str) -> bool {
    let is_in = |names: &str| names.split_whitespace().any(|known| known == name);
    // 0 disables any other option; of this one, it makes a random test sequential.
    let is_off = ["0", "none", "no", "off", "false"].contains(&value) && name != "percentage_random";
    is_in(OF_THE_CELL) || is_in(WITHOUT_EFFECT) || is_off || USUAL.contains(&(name, value))
}

/// Returns the number of names in a list. A colon that belongs to a name has a backslash before it.
fn files(names: &str) -> usize {
    names.replace("\\:", "").split(':').filter(|name| !name.is_empty()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_fio_reads_them() {
        let of = |text: &str, options: &str| {
            let (json, _) = Json::first(options).expect("JSON");
            FioOptions { global: &Json::Null, own: &json }.size(text).map(|size| size.0)
        };
        let (usual, si) = ("{}", "{\"kb_base\": \"1000\"}");
        assert_eq!([of("4k", usual), of("4K", usual), of("4kB", usual)], [Some(4096); 3]);
        assert_eq!([of("4ki", usual), of("4KiB", usual), of("4k", si)], [Some(4000); 3]);
        assert_eq!([of("4ki", si), of("4096", si), of("4096B", usual)], [Some(4096); 3]);
        assert_eq!([of("1g", usual), of("2t", usual)], [Some(1 << 30), Some(2 << 40)]);
        assert_eq!([of("100%", usual), of("4k,8k", usual), of("0", usual), of("99999p", usual)], [None; 4]);
    }

    #[test]
    fn names_of_files_are_counted() {
        assert_eq!(["a", "a:b", "/dev/disk/by-path/pci-0000\\:00\\:1f.2:b", ""].map(files), [1, 2, 2, 0]);
    }
}
