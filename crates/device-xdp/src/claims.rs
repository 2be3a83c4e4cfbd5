//! The claims in force, and the maps that hold them.

use std::collections::{BTreeMap, BTreeSet};

use aya::maps::{Array, HashMap, MapData};
use steering::{Claim, ClaimTerms, QueueSet};

use crate::XdpError;
use crate::claim_key::{ClaimKey, ClaimValue, PortBit};
use crate::error::{absent_is_fine, map_error};

/// The maps `claims` and `ports`, and what they hold.
pub(crate) struct Claims {
    claims: HashMap<MapData, ClaimKey, ClaimValue>,
    ports: Array<MapData, u64>,
    current: BTreeMap<Claim, ClaimTerms>,
    /// How many claims have each port.
    port_users: BTreeMap<PortBit, usize>,
}

impl Claims {
    /// What the maps hold: something only if another process left it.
    pub(crate) fn read(
        claims: HashMap<MapData, ClaimKey, ClaimValue>,
        ports: Array<MapData, u64>,
    ) -> Result<Claims, XdpError> {
        let mut current = BTreeMap::new();
        let mut port_users: BTreeMap<PortBit, usize> = BTreeMap::new();
        for entry in claims.iter() {
            let (key, value) = entry.map_err(map_error("claims"))?;
            let Some(claim) = key.claim() else { continue };
            *port_users.entry(PortBit::of(&claim)).or_default() += 1;
            current.insert(claim, ClaimTerms::from(value));
        }
        Ok(Claims { claims, ports, current, port_users })
    }

    pub(crate) fn current(&self) -> &BTreeMap<Claim, ClaimTerms> {
        &self.current
    }

    /// Removes and adds claims until exactly `wanted` is claimed, without terms.
    pub(crate) fn change_to(&mut self, wanted: &BTreeSet<Claim>) -> Result<(), XdpError> {
        let gone: Vec<Claim> = self.current.keys().filter(|claim| !wanted.contains(claim)).copied().collect();
        gone.into_iter().try_for_each(|claim| self.remove(claim))?;
        wanted.iter().try_for_each(|&claim| self.put(claim, ClaimTerms::default()))
    }

    /// Adds a claim, or changes its terms; no packet meets neither the old nor the new ones. The port's bit only says that it is
    /// worth looking; the claim itself decides. So order does not matter.
    pub(crate) fn put(&mut self, claim: Claim, terms: ClaimTerms) -> Result<(), XdpError> {
        let known = self.current.get(&claim).copied();
        if known == Some(terms) {
            return Ok(());
        }
        let bit = PortBit::of(&claim);
        let is_new = known.is_none();
        if !self.port_users.contains_key(&bit) {
            self.write_port(bit, true)?;
        }
        let noted = known.is_some_and(|known| self.has_noted(claim, known, terms));
        let value = ClaimValue::from(terms);
        let value = if noted { value.with_noted() } else { value };
        self.claims.insert(ClaimKey::from(claim), value, 0).map_err(map_error("claims"))?;
        if is_new {
            *self.port_users.entry(bit).or_default() += 1;
        }
        self.current.insert(claim, terms);
        Ok(())
    }

    /// Whether the program has noted flows under the claim of its own accord, which count under the next terms, too: those of listeners of the
    /// kernel's that went first.
    fn has_noted(&self, claim: Claim, before: ClaimTerms, next: ClaimTerms) -> bool {
        let may_have = before.deaf() != QueueSet::NONE && before.marks == next.marks;
        may_have && self.claims.get(&ClaimKey::from(claim), 0).is_ok_and(ClaimValue::has_noted)
    }

    /// Removes a claim, if there is one.
    pub(crate) fn remove(&mut self, claim: Claim) -> Result<(), XdpError> {
        absent_is_fine(self.claims.remove(&ClaimKey::from(claim))).map_err(map_error("claims"))?;
        if self.current.remove(&claim).is_none() {
            return Ok(());
        }
        let bit = PortBit::of(&claim);
        let users = self.port_users.get_mut(&bit).expect("every claim is counted");
        *users -= 1;
        if *users == 0 {
            self.port_users.remove(&bit);
            self.write_port(bit, false)?;
        }
        Ok(())
    }

    /// We are the map's only writer, so reading and writing back loses nothing.
    fn write_port(&mut self, bit: PortBit, claimed: bool) -> Result<(), XdpError> {
        let word = self.ports.get(&bit.word, 0).map_err(map_error("ports"))?;
        let word = if claimed { word | bit.mask } else { word & !bit.mask };
        self.ports.set(bit.word, word, 0).map_err(map_error("ports"))
    }
}
