package breaker

import "time"

// buckets is the number of parts of a window. The oldest part is forgotten as a whole.
const buckets = 10

// Window counts the attempts and faults of a target within a sliding time. It covers at most that time, and at least
// nine tenths of it. Its size is constant. The zero value is empty. Times are durations since any fixed time, and do
// not decrease. A Window is not safe for concurrent use.
type Window struct {
	width   time.Duration // of a bucket
	buckets [buckets]bucket
}

// bucket counts the attempts that ended in one part of the time.
type bucket struct {
	slot             int64 // number of the part since time 0
	attempts, faults int
}

// Add counts an attempt that ended at the time now. If length differs from that of the last call, Add forgets all
// earlier attempts first.
func (w *Window) Add(now, length time.Duration, fault bool) {
	width := max(length/buckets, 1)
	if w.width != width {
		*w = Window{width: width}
	}
	slot := int64(now / width)
	b := &w.buckets[slot%buckets]
	if b.slot != slot {
		*b = bucket{slot: slot}
	}
	b.attempts++
	if fault {
		b.faults++
	}
}

// Counts returns the numbers of attempts and of faults among them at the time now.
func (w *Window) Counts(now time.Duration) (attempts, faults int) {
	if w.width == 0 {
		return 0, 0
	}
	oldest := int64(now/w.width) - buckets + 1
	for _, b := range w.buckets {
		if b.slot >= oldest {
			attempts, faults = attempts+b.attempts, faults+b.faults
		}
	}
	return attempts, faults
}

// TooMany reports whether faults are at least rate percent of the attempts, and the attempts are at least minimum.
func TooMany(attempts, faults, rate, minimum int) bool {
	return faults > 0 && attempts >= minimum && faults*100 >= rate*attempts
}
