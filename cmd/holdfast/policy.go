package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/surface"
)

type policyCommands struct{ *tool }

func (t policyCommands) command() *cli.Command {
	return noun("policy", "show what a retry policy does",
		t.verb("simulate", "print the attempts of a task that always fails",
			`Prints when each attempt begins, from the settings of the type that are in effect now. --set shows what
another value would do, and changes nothing. Times are ranges if the delays have a random part (retry.jitter). The
attempts themselves take no time, and no worker is busy.

Example:
  holdfast policy simulate --type http --set retry.base=5s --set max_attempts=4`,
			reads(t.tool, openCheckedStore, t.simulate), outputFlag()),
	)
}

func (t policyCommands) simulate(ctx context.Context, c *cli.Context, b *app.Backend, r surface.Simulation) error {
	simulated, err := surface.Simulate(ctx, b, r)
	if err != nil {
		return err
	}
	err = printList(t.tool, c, "attempts", simulated.Attempts, "",
		column[surface.SimulatedAttempt]{"attempt", func(a surface.SimulatedAttempt) string { return fmt.Sprint(a.Attempt) }},
		column[surface.SimulatedAttempt]{"delay", func(a surface.SimulatedAttempt) string { return between(a.DelayMinSeconds, a.DelayMaxSeconds) }},
		column[surface.SimulatedAttempt]{"since creation", func(a surface.SimulatedAttempt) string { return between(a.SinceMinSeconds, a.SinceMaxSeconds) }},
		column[surface.SimulatedAttempt]{"earliest", func(a surface.SimulatedAttempt) string { return t.stamp(a.Earliest) }},
		column[surface.SimulatedAttempt]{"latest", func(a surface.SimulatedAttempt) string { return t.stamp(a.Latest) }},
		column[surface.SimulatedAttempt]{"if it fails", func(a surface.SimulatedAttempt) string { return a.Result }},
	)
	switch {
	case err != nil:
		return err
	case simulated.End == "":
		t.say("the task has more attempts; see --limit")
	default:
		t.say("ended by: %s", simulated.End)
	}
	return nil
}

// between formats a range of durations in seconds.
func between(lowSeconds, highSeconds float64) string {
	low, high := rough(duration(lowSeconds)), rough(duration(highSeconds))
	if low == high {
		return low.String()
	}
	return low.String() + " to " + high.String()
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

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
