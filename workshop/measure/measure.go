// Package measure measures how soon tasks run: after a kill -9, a drain or a restart, when they are due, while workers
// are busy, and during a flood of malformed messages or a migration. `make recovery` runs it and writes
// docs/recovery.md, which other pages quote. The end-to-end tests assert what happens; this package measures when.
//
// Most measurements start processes of the real program. A measurement that needs internal state, such as which worker
// is idle, runs the real packages in its own process.
package measure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
)

// Options configures the measurements. Program and Log are required. DatabaseURL and AMQPURL are required if Servers is
// true.
type Options struct {
	Program              string // path of the holdfast program
	DatabaseURL, AMQPURL string
	Servers, Embedded    bool   // the backends to measure
	Only                 string // name of the only measurement to make; empty for all
	Trials               int    // number of kills, drains, restarts and migrations
	Rounds               int    // rounds of fairness, saturation and the flood; at most three rounds of last-chance tasks
	Tasks                int    // number of delayed tasks
	Flood                int    // malformed messages for each AMQP queue
	Backlog              int    // low tasks that wait while a high task is stored
	Finished             int    // finished tasks in the store during restarts, on servers
	Log                  logrus.FieldLogger
}

// Defaults returns the options for the published figures, with both backends.
func Defaults() Options {
	return Options{Servers: true, Embedded: true, Trials: 25, Rounds: 5, Tasks: 1000, Flood: 5000, Backlog: 1_000_000}
}

// Figure has the samples of one measurement on one backend.
type Figure struct {
	Name    string // heading in the report
	What    string // the event at which a sample begins, and the event at which it ends
	Backend string
	Unit    string
	Samples []float64
}

// Quantile returns the q-quantile: the smallest sample such that at least the share q of all samples is not larger. q
// is from 0 to 1. There must be a sample.
func (f Figure) Quantile(q float64) float64 {
	sorted := slices.Sorted(slices.Values(f.Samples))
	at := int(q * float64(len(sorted)))
	if float64(at) == q*float64(len(sorted)) && at > 0 {
		at--
	}
	return sorted[min(at, len(sorted)-1)]
}

// The units.
const (
	seconds = "s"
	percent = "%"
)

// measurement produces figures on a testbed.
type measurement struct {
	name string
	make func(ctx context.Context, tb *testbed) ([]Figure, error)
	on   func(embedded bool) bool // reports whether the measurement applies to a backend; nil means both
}

var measurements = []measurement{
	{"kill", measureKill, func(embedded bool) bool { return !embedded }},
	{"restart", measureRestart, nil},
	{"drain", measureDrain, nil},
	{"delayed", measureDelayed, nil},
	{"pick-up", measurePickUp, nil},
	{"fairness", measureFairness, nil},
	{"priorities", measurePriorities, nil},
	{"saturation", measureSaturation, nil},
	{"flood", measureFlood, nil},
	{"last-chance", measureLastChances, nil},
	{"migration", measureMigrations, func(embedded bool) bool { return !embedded }},
}

// Run makes the measurements one after the other. It passes each figure to done as soon as its measurement has ended.
// It returns the error of the first measurement that fails.
func Run(ctx context.Context, o Options, done func(Figure)) error {
	for _, embedded := range []bool{false, true} {
		if embedded && !o.Embedded || !embedded && !o.Servers {
			continue
		}
		for _, m := range measurements {
			if o.Only != "" && o.Only != m.name || m.on != nil && !m.on(embedded) {
				continue
			}
			figures, err := measure(ctx, o, embedded, m)
			if err != nil {
				return fmt.Errorf("measure %s on %s: %w", m.name, backend(embedded), err)
			}
			for _, f := range figures {
				f.Backend = backend(embedded)
				done(f)
			}
		}
	}
	return nil
}

// measure makes one measurement on a new testbed.
func measure(ctx context.Context, o Options, embedded bool, m measurement) (figures []Figure, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Minute)
	defer cancel()
	tb, err := open(ctx, o, embedded)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closing := tb.close(); err == nil {
			err = closing
		}
	}()
	return m.make(ctx, tb)
}

// backend returns the name of a backend in the report.
func backend(embedded bool) string {
	if embedded {
		return "one file"
	}
	return "servers"
}
