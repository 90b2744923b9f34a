//! Where inference keeps activations: in as few buffers as are in use at a time, so that they stay in cache.

use super::output::Saved;
use super::stack::Stack;

/// The buffer of every activation.
#[derive(Debug)]
pub(super) struct Slots {
    convolutions: Vec<usize>,
    /// Of residual units whose sum is used more than once.
    sums: Vec<Option<usize>>,
    /// The number of buffers.
    pub count: usize,
}

impl Slots {
    pub fn new(stack: &Stack) -> Self {
        let units = stack.units().len();
        // The end is the step after the last unit, which reads the last output.
        let first_read = |unit: usize| *stack.uses(unit).readers.first().unwrap_or(&units);
        let mut slots = Self { convolutions: Vec::new(), sums: vec![None; units], count: 0 };
        // For every buffer, the last step that reads it.
        let mut busy: Vec<usize> = Vec::new();
        let mut take = |step: usize, last: usize| {
            let free = busy.iter().position(|last| *last < step);
            let slot = free.unwrap_or(busy.len());
            busy.resize(busy.len().max(slot + 1), 0);
            busy[slot] = last;
            slot
        };
        for step in 0..units {
            if let Some(source) = stack.source(step).filter(|source| first_read(*source) == step) {
                let last = last_use(stack, source, first_read);
                if stack.addend(source).is_some() && last > step {
                    slots.sums[source] = Some(take(step, last));
                }
            }
            // A sum is read once after its convolution; after that, it is what is used.
            let last = match stack.addend(step) {
                Some(_) => first_read(step),
                None => last_use(stack, step, first_read),
            };
            slots.convolutions.push(take(step, last));
        }
        slots.count = busy.len();
        slots
    }

    /// The buffer of what is stored.
    ///
    /// # Panics
    /// When it is a sum that is used only once, which is not stored.
    pub fn of(&self, saved: Saved) -> usize {
        match saved {
            Saved::Convolution(unit) => self.convolutions[unit],
            Saved::Sum(unit) => self.sums[unit].expect("the sum is stored"),
        }
    }

    /// The buffer of a sum, if it is stored.
    pub fn of_sum(&self, unit: usize) -> Option<usize> {
        self.sums[unit]
    }
}

/// The last step that uses a unit's output.
fn last_use(stack: &Stack, unit: usize, first_read: impl Fn(usize) -> usize) -> usize {
    let uses = stack.uses(unit);
    let added = uses.adder.map(&first_read);
    uses.readers.last().copied().into_iter().chain(added).max().unwrap_or(stack.units().len())
}

#[cfg(test)]
mod tests {
    use super::super::unit::{Shortcut, ShortcutOrder, Unit};
    use super::*;

    fn block() -> [Unit; 2] {
        let shortcut = Some(Shortcut { from: 2, order: ShortcutOrder::BeforeActivation });
        [Unit::new(8), Unit { shortcut, ..Unit::new(8) }]
    }

    #[test]
    fn a_chain_needs_two_buffers_and_residual_blocks_a_few_more() {
        let chain = Stack::new([3, 8, 8], vec![Unit::new(8); 5]).unwrap();
        assert_eq!(Slots::new(&chain).count, 2);
        let mut units = vec![Unit::new(8)];
        units.extend([block(), block(), block(), block()].concat());
        let residual = Stack::new([3, 8, 8], units).unwrap();
        assert_eq!(Slots::new(&residual).count, 4);
    }

    #[test]
    fn what_is_read_is_in_another_buffer_than_what_is_written() {
        let projected = [
            Unit { stride: 2, ..Unit::new(16) },
            Unit { kernel: [1, 1], padding: 0, stride: 2, from: 2, ..Unit::new(16) },
            Unit {
                from: 2,
                shortcut: Some(Shortcut { from: 1, order: ShortcutOrder::AfterActivation }),
                ..Unit::new(16)
            },
        ];
        let units = [vec![Unit::new(8)], block().to_vec(), projected.to_vec()].concat();
        let stack = Stack::new([3, 8, 8], units).unwrap();
        let slots = Slots::new(&stack);
        // The sum of the first block is read by the units 3 and 4.
        let sum = slots.of_sum(2).unwrap();
        assert_eq!(slots.of_sum(5), None);
        for other in [2, 3, 4] {
            assert_ne!(slots.of(Saved::Convolution(other)), sum);
        }
        assert_ne!(slots.of(Saved::Convolution(0)), sum);
        let [a, b, c] = [3, 4, 5].map(|unit| slots.of(Saved::Convolution(unit)));
        assert!(a != b && b != c && a != c);
    }
}
