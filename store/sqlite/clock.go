package sqlite

import (
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// maxDrift is the maximum difference between the two clocks of the machine, from one reading to the next, that is not a
// jump.
const maxDrift = time.Second

// clockReading is the time on both clocks of the machine.
type clockReading struct {
	wall  time.Time     // the wall clock, which can be set and continues while the machine sleeps
	awake time.Duration // the monotonic clock, which cannot be set and stops while the machine sleeps
}

func machineClock() func() clockReading {
	start := time.Now()
	return func() clockReading {
		now := time.Now()
		return clockReading{wall: now.Round(0), awake: now.Sub(start)}
	}
}

// clock is the store's clock. It detects that the machine slept or that its clock was set. Both are jumps: after a
// jump, leases have expired that no worker could renew.
type clock struct {
	read func() clockReading
	log  logrus.FieldLogger

	mu    sync.Mutex
	last  clockReading
	since time.Duration // time of the latest jump, or of the first reading, on the monotonic clock
}

func newClock(read func() clockReading) *clock {
	first := read()
	return &clock{read: read, last: first, since: first.awake}
}

// now returns the time in UTC, truncated to microseconds.
func (c *clock) now() time.Time {
	now, _ := c.check()
	return now
}

// steady returns the time since the latest jump of the clock, or since the store was opened if there was no jump.
func (c *clock) steady() time.Duration {
	_, steady := c.check()
	return steady
}

// check reads both clocks and detects a jump.
func (c *clock) check() (now time.Time, steady time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	current := c.read()
	drift := current.wall.Sub(c.last.wall) - (current.awake - c.last.awake)
	if drift > maxDrift || drift < -maxDrift {
		c.since = current.awake
		if c.log != nil {
			c.log.WithField("leap", drift).Warn("machine slept or its clock was set: expired leases are ignored for some time")
		}
	}
	c.last = current
	return current.wall.Truncate(time.Microsecond).UTC(), current.awake - c.since
}
