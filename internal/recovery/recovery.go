// Package recovery measures how soon work goes on after something happened: a kill -9, a drain, a restart, the due time of
// a delayed task, a busy neighbor, a flood of malformed messages, a migration. It is what `make recovery` runs, and it writes
// docs/recovery.md, the page that the promises quote. The tests assert what happens; this program measures when.
//
// Processes are processes of the real program. What a measurement has to see from inside, such as which worker is idle, runs
// in the measuring process, with the real packages.
package recovery

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
)

// Options say what is measured, and how often. Program is required; DatabaseURL and AMQPURL are, unless Servers is false.
type Options struct {
	Program              string // the holdfast program
	DatabaseURL, AMQPURL string
	Servers, Embedded    bool   // which backends
	Only                 string // part of the name of the measurements to make; empty for all
	Trials               int    // kills, drains, restarts and migrations
	Rounds               int    // of fairness, saturation and the flood; at most three of last chances
	Tasks                int    // delayed ones
	Flood                int    // malformed messages in each queue
	Finished             int    // tasks that are kept in the store during restarts, on servers
	Log                  logrus.FieldLogger
}

// Defaults returns the options of the published figures, for both backends.
func Defaults() Options {
	return Options{Servers: true, Embedded: true, Trials: 25, Rounds: 5, Tasks: 1000, Flood: 5000}
}

// Figure is what was measured of one thing on one backend.
type Figure struct {
	Name    string // a heading of the report
	What    string // from when to when
	Backend string
	Unit    string
	Samples []float64
}

// Quantile returns the smallest sample that at least a share q of all samples do not exceed.
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

// measurement makes figures on one place.
type measurement struct {
	name string
	make func(ctx context.Context, p *place) ([]Figure, error)
	on   func(embedded bool) bool // nil for both backends
}

var measurements = []measurement{
	{"kill", killed, func(embedded bool) bool { return !embedded }},
	{"restart", restarted, nil},
	{"drain", drained, nil},
	{"delayed", delayed, nil},
	{"pick-up", pickedUp, nil},
	{"fairness", shared, nil},
	{"saturation", saturated, nil},
	{"flood", flooded, nil},
	{"last-chance", lastChances, nil},
	{"migration", migrated, func(embedded bool) bool { return !embedded }},
}

// Run makes all measurements, one after the other. done gets the figures of each as soon as there are any.
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

func measure(ctx context.Context, o Options, embedded bool, m measurement) (figures []Figure, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Minute)
	defer cancel()
	p, err := open(ctx, o, embedded)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closing := p.close(); err == nil {
			err = closing
		}
	}()
	return m.make(ctx, p)
}

func backend(embedded bool) string {
	if embedded {
		return "one file"
	}
	return "servers"
}
