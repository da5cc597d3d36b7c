package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/search"
	"github.com/holdfastq/holdfast/internal/simulate"
)

// policyCommands implements the command policy and its subcommand.
type policyCommands struct{ *tool }

// maxSimulated is the default limit of attempts in a timeline.
const maxSimulated = 100

func (t policyCommands) command() *cli.Command {
	return &cli.Command{
		Name:  "policy",
		Usage: "show what a retry policy does",
		Subcommands: []*cli.Command{{
			Name:  "simulate",
			Usage: "print the attempts of a task that always fails",
			Description: `Prints when each attempt begins, from the settings of the type that are in effect now. --set shows what another
value would do, and changes nothing. Times are ranges if the delays have a random part (retry.jitter). The attempts
themselves take no time, and no worker is busy.

Example:
  holdfast policy simulate --type http --set retry.base=5s --set max_attempts=4`,
			Flags: []cli.Flag{
				outputFlag(),
				&cli.StringFlag{Name: "type", Usage: "simulate a task of the type `NAME`"},
				&cli.StringSliceFlag{Name: "set", Usage: "with another setting of the type, as `KEY=VALUE`, for example retry.base=5s. May be repeated."},
				&cli.StringFlag{Name: "from", Value: "now", Usage: "the task is created at `TIME`: now, 2030-01-31, 2030-01-31 09:00 or 2030-01-31T09:00:00Z; default now"},
				&cli.IntFlag{Name: "limit", Value: maxSimulated, Usage: "at most `N` attempts; default 100"},
			},
			Action: t.do(t.simulate),
		}},
	}
}

func (t policyCommands) simulate(ctx context.Context, c *cli.Context) error {
	kind, limit, from := c.String("type"), c.Int("limit"), time.Now()
	if err := (holdfast.NewTask{Type: kind}).Validate(0); err != nil {
		return usageOf(commandName(c), "--type %q is not the name of a task type", kind)
	}
	if limit < 1 || limit > 100_000 {
		return usageOf(commandName(c), "--limit %d must be between 1 and 100000", limit)
	}
	if text := c.String("from"); text != "now" {
		var err error
		if from, err = search.Time(text); err != nil {
			return usageOf(commandName(c), "--from: %w, or now", err)
		}
	}
	changed := make(map[string]string)
	for _, pair := range c.StringSlice("set") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return usageOf(commandName(c), "--set %s: use the form key=value", pair)
		}
		changed["types."+kind+"."+strings.TrimPrefix(key, "types."+kind+".")] = value
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		now, err := b.ReadSettings(ctx)
		if err != nil {
			return err
		}
		values := maps.Clone(now.Values)
		maps.Copy(values, changed)
		merged, ignored := b.Config.WithStored(values)
		var problems []error
		for _, problem := range ignored {
			if strings.HasPrefix(problem.Key, "types."+kind+".") {
				problems = append(problems, problem)
			}
		}
		if len(changed) > 0 && len(problems) > 0 {
			return errors.Join(problems...)
		}
		line, err := simulate.Of(merged.Settings().For(kind).Policy, limit)
		if err != nil {
			return err
		}
		return t.print(c, line, from)
	})
}

// simulatedAttempt is the form of an attempt.
type simulatedAttempt struct {
	Attempt         int       `json:"attempt"`
	DelayMinSeconds float64   `json:"delay_min_seconds"`
	DelayMaxSeconds float64   `json:"delay_max_seconds"`
	SinceMinSeconds float64   `json:"since_min_seconds"`
	SinceMaxSeconds float64   `json:"since_max_seconds"`
	Earliest        time.Time `json:"earliest"`
	Latest          time.Time `json:"latest"`
	Result          string    `json:"result"`
	End             string    `json:"end,omitempty"` // what ends the task; present in the last attempt
	delay, since    string
}

func (t policyCommands) print(c *cli.Context, line simulate.Timeline, from time.Time) error {
	attempts := make([]simulatedAttempt, len(line.Attempts))
	for i, a := range line.Attempts {
		attempts[i] = simulatedAttempt{
			Attempt: a.Attempt, DelayMinSeconds: a.DelayMin.Seconds(), DelayMaxSeconds: a.DelayMax.Seconds(),
			SinceMinSeconds: a.SinceMin.Seconds(), SinceMaxSeconds: a.SinceMax.Seconds(),
			Earliest: from.Add(a.SinceMin).UTC(), Latest: from.Add(a.SinceMax).UTC(), Result: a.Result,
			delay: between(a.DelayMin, a.DelayMax), since: between(a.SinceMin, a.SinceMax),
		}
	}
	attempts[len(attempts)-1].End = line.End
	err := list(t.tool, c, "attempts", attempts, "",
		column[simulatedAttempt]{"attempt", func(a simulatedAttempt) string { return fmt.Sprint(a.Attempt) }},
		column[simulatedAttempt]{"delay", func(a simulatedAttempt) string { return a.delay }},
		column[simulatedAttempt]{"since creation", func(a simulatedAttempt) string { return a.since }},
		column[simulatedAttempt]{"earliest", func(a simulatedAttempt) string { return t.stamp(a.Earliest) }},
		column[simulatedAttempt]{"latest", func(a simulatedAttempt) string { return t.stamp(a.Latest) }},
		column[simulatedAttempt]{"if it fails", func(a simulatedAttempt) string { return a.Result }},
	)
	switch {
	case err != nil:
		return err
	case line.End == "":
		t.say("the task has more attempts; see --limit")
	default:
		t.say("ended by: %s", line.End)
	}
	return nil
}

// between formats a range of durations.
func between(low, high time.Duration) string {
	low, high = rough(low), rough(high)
	if low == high {
		return low.String()
	}
	return low.String() + " to " + high.String()
}

// rough rounds a duration to about three digits.
func rough(d time.Duration) time.Duration {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}
