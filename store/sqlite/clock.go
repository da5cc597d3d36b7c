package sqlite

import (
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// leap is by how much the two clocks of the machine may come apart between two looks.
const leap = time.Second

// reading is one look at both clocks.
type look struct {
	wall  time.Time     // as people tell the time; it can be set, and goes on while the machine sleeps
	awake time.Duration // since some moment; it stands still while the machine sleeps
}

// machineClock reads the clocks of the machine.
func machineClock() func() look {
	start := time.Now()
	return func() look {
		now := time.Now()
		return look{wall: now.Round(0), awake: now.Sub(start)}
	}
}

// clock is the store's clock. It notices when the machine slept or its clock was set: then leases are over that
// nobody could renew.
type clock struct {
	read func() look
	log  logrus.FieldLogger

	mu    sync.Mutex
	last  look
	since time.Duration // by the clock that cannot be set, from when on time went on evenly
}

func newClock(read func() look) *clock {
	first := read()
	return &clock{read: read, last: first, since: first.awake}
}

// now is the time, in whole microseconds.
func (c *clock) now() time.Time {
	now, _ := c.look()
	return now
}

// even is for how long time has gone on evenly: since the last leap, or since the store was opened.
func (c *clock) even() time.Duration {
	_, even := c.look()
	return even
}

func (c *clock) look() (now time.Time, even time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	current := c.read()
	off := current.wall.Sub(c.last.wall) - (current.awake - c.last.awake)
	if off > leap || off < -leap {
		c.since = current.awake
		if c.log != nil {
			c.log.WithField("leap", off).Warn("the machine slept, or its clock was set; leases that are over prove nothing for a while")
		}
	}
	c.last = current
	return current.wall.Truncate(time.Microsecond).UTC(), current.awake - c.since
}
