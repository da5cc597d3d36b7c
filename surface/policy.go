package surface

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/preview"
	"github.com/holdfastq/holdfast/internal/search"
)

const (
	// simulatedAttempts is the number of attempts of a simulation without a limit.
	simulatedAttempts = 100
	// maxSimulatedAttempts is the largest limit of a simulation.
	maxSimulatedAttempts = 100_000
)

// Simulation is a request to compute the attempts of a task that always fails.
type Simulation struct {
	Type  string            `json:"type" flag:"NAME" doc:"The type of the task."`
	Set   map[string]string `json:"set,omitempty" flag:"KEY=VALUE" doc:"Other settings of the type, such as retry.base. They change nothing."`
	From  string            `json:"from,omitempty" flag:"TIME" doc:"When the task is created: now, 2030-01-31, 2030-01-31 09:00 or 2030-01-31T09:00:00Z; now, if it is missing."`
	Limit int               `json:"limit,omitempty" flag:"N" minimum:"1" most:"100000" doc:"At most so many attempts, 1 to 100000; 100, if it is missing."`
}

// Check returns an ErrInvalid that begins with the name of the invalid member.
func (r Simulation) Check() error {
	if err := (holdfast.NewTask{Type: r.Type}).Validate(0); err != nil {
		return fmt.Errorf("%w: type %q is not the name of a task type", holdfast.ErrInvalid, r.Type)
	}
	if r.Limit < 0 || r.Limit > maxSimulatedAttempts {
		return fmt.Errorf("%w: limit %d must be between 1 and %d", holdfast.ErrInvalid, r.Limit, maxSimulatedAttempts)
	}
	_, err := r.from()
	return err
}

// from returns the time at which the task is created.
func (r Simulation) from() (time.Time, error) {
	if r.From == "" || r.From == "now" {
		return time.Now(), nil
	}
	at, err := search.Time(r.From)
	if err != nil {
		err = fmt.Errorf("%w: from %w, or now", holdfast.ErrInvalid, err)
	}
	return at, err
}

// Simulated has the attempts of a task that always fails.
type Simulated struct {
	Attempts []SimulatedAttempt `json:"attempts"`
	End      string             `json:"end,omitempty" doc:"What ends the task; missing if the limit ends the list before that."`
}

// SimulatedAttempt is an attempt of a task that always fails. Times are ranges if delays have a random part.
type SimulatedAttempt struct {
	Attempt         int       `json:"attempt"`
	DelayMinSeconds float64   `json:"delay_min_seconds"`
	DelayMaxSeconds float64   `json:"delay_max_seconds"`
	SinceMinSeconds float64   `json:"since_min_seconds"`
	SinceMaxSeconds float64   `json:"since_max_seconds"`
	Earliest        time.Time `json:"earliest"`
	Latest          time.Time `json:"latest"`
	Result          string    `json:"result" doc:"What happens when the attempt has failed: retry, dead, or retry or dead."`
	End             string    `json:"end,omitempty" doc:"What ends the task; present in the last attempt."`
}

// Simulate computes the attempts of a task that always fails. The settings of the request replace those in effect.
// Simulate changes nothing. It returns an ErrInvalid that begins with the name of the invalid member.
func Simulate(ctx context.Context, b *app.Backend, r Simulation) (Simulated, error) {
	if err := r.Check(); err != nil {
		return Simulated{}, err
	}
	from, _ := r.from()
	r.Limit = cmp.Or(r.Limit, simulatedAttempts)
	now, err := b.ReadSettings(ctx)
	if err != nil {
		return Simulated{}, err
	}
	prefix := "types." + r.Type + "."
	values := maps.Clone(now.Values)
	if values == nil {
		values = make(map[string]string)
	}
	for key, value := range r.Set {
		values[prefix+strings.TrimPrefix(key, prefix)] = value
	}
	merged, ignored := b.Config.WithStored(values)
	var problems []error
	for _, problem := range ignored {
		if strings.HasPrefix(problem.Key, prefix) {
			problems = append(problems, problem)
		}
	}
	if len(r.Set) > 0 && len(problems) > 0 {
		return Simulated{}, errors.Join(problems...)
	}
	computed, err := preview.Of(merged.Settings().For(r.Type).Policy, r.Limit)
	if err != nil {
		return Simulated{}, err
	}
	attempts := Each(computed.Attempts, func(a preview.Attempt) SimulatedAttempt {
		return SimulatedAttempt{
			a.Attempt, a.DelayMin.Seconds(), a.DelayMax.Seconds(), a.SinceMin.Seconds(), a.SinceMax.Seconds(),
			from.Add(a.SinceMin).UTC(), from.Add(a.SinceMax).UTC(), a.Result, "",
		}
	})
	attempts[len(attempts)-1].End = computed.End
	return Simulated{attempts, computed.End}, nil
}
