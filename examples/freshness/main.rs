//! Simulates worlds of pages and compares policies.
mod baseline;
mod learned;
mod oracle;
mod policy;
mod random;
mod score;
mod world;
use clap::Parser;
use std::time::{Duration, Instant};
#[derive(Parser)]
struct Args {
    #[arg(long, default_value = "mix", value_delimiter = ',')]
    worlds: Vec<world::Kind>,
    #[arg(long, default_value = "1,2,3", value_delimiter = ',')]
    seeds: Vec<u64>,
    #[arg(long, default_value = "0.05,0.1,0.3", value_delimiter = ',')]
    budgets: Vec<f64>,
    #[arg(long, default_value_t = 2000)]
    pages: usize,
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}
fn main() {
    let args = Args::parse();
    for kind in &args.worlds {
        for &b in &args.budgets {
            let names = ["uniform", "changefreq", "proportional", "nutch", "storm", "lastmod", "clairvoyant", "o-harm-deaf", "o-fresh", "o-harm", "learned"];
            let t = Instant::now();
            let mut rows = vec![];
            for n in names {
                if !args.only.is_empty() && !args.only.iter().any(|o| o == n) { continue; }
                let start = Instant::now();
                let mut s = [0.0; 6];
                let mut closed = 0.0;
                for &seed in &args.seeds {
                    let w = world::World::draw(*kind, seed, args.pages);
                    let opt = oracle::optimum(&w, b);
                    closed += opt.freshness;
                    use baseline::*;
                    let base = |r| Box::new(Baseline::new(r, &w, &opt.intervals)) as Box<dyn policy::Policy>;
                    let mut p: Box<dyn policy::Policy> = match n {
                        "uniform" => base(Rule::Uniform),
                        "changefreq" => base(Rule::Changefreq),
                        "proportional" => base(Rule::Proportional),
                        "nutch" => base(Rule::Nutch),
                        "storm" => base(Rule::StormCrawler),
                        "lastmod" => base(Rule::Lastmod),
                        "clairvoyant" => base(Rule::Clairvoyant),
                        "o-harm-deaf" => Box::new(oracle::Oracle::new(oracle::Goal::HarmonicDeaf, &w)),
                        "o-fresh" => Box::new(oracle::Oracle::new(oracle::Goal::Freshness, &w)),
                        "o-harm" => Box::new(oracle::Oracle::new(oracle::Goal::Harmonic, &w)),
                        _ => Box::new(learned::Learned::new(&w, learned::Settings { min: Duration::from_secs(3600), max: Duration::from_secs(180 * 86400), compares: true, budget: Some(w.pages.len() as f64 * b / 24.0) })),
                    };
                    let r = policy::run(&w, p.as_mut(), b);
                    for (a, v) in s.iter_mut().zip([r.fresh, r.age, r.harmonic, r.useful, r.longest, r.writes]) { *a += v / args.seeds.len() as f64; }
                }
                rows.push((n, s));
                println!("{:10} {b:.2} {n:12} fresh {:.3} age {:6.2} harm {:.3} useful {:.3} longest {:5.1} writes {:.2}  closed {:.3} {:?}", kind.as_str(), s[0], s[1], s[2], s[3], s[4], s[5], closed / args.seeds.len() as f64, start.elapsed() / args.seeds.len() as u32);
            }
            let h = |n: &str| rows.iter().find(|r| r.0 == n).map_or(f64::NAN, |r| r.1[2]);
            println!("   learned/uniform {:.3}  /nutch {:.3}  /o-harm {:.3}  {:?}", h("learned") / h("uniform"), h("learned") / h("nutch"), h("learned") / h("o-harm"), t.elapsed());
        }
    }
}
