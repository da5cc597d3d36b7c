package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

type sliceCommands struct{ *tool }

func (t sliceCommands) command() *cli.Command {
	return noun("slice slices", "pull sources in slices of time",
		noun("source sources", "set, show and delete the sources that are pulled",
			t.verb("set NAME", "create a source, or change it while workers run",
				`While a janitor runs, the source stores a task for each slice of time that has ended. The payload of the task has the
source and the interval to pull. A source stores slices in order, at most --in-flight at a time. A dead slice does not
stop it.

The source `+plan.DefaultSource+` has no slices: its settings are in effect in each source that does not have the setting
itself. A change is in effect from the next slice on. Values without a flag stay, and none removes a value, so that
`+plan.DefaultSource+` decides. --start counts when the source is created. To pull earlier times, use "slice backfill".

Example:
  holdfast slice source set default --every 5m --overlap 5s --lag 30s --start -2160h --in-flight 4
  holdfast slice source set shop-17 --type orders.pull
  holdfast slice source set shop-17 --rate 10/m --queue big-shops --reason "it throttles us"
  holdfast slice source set shop-17 --timeout 30s --retry-strategy linear --retry-base 1m`,
				changes(t.tool, openNewStore, t.set), outputFlag()),
			t.verb("get NAME", "show a source with its settings and its progress",
				`The settings are those in effect. "(default)" follows a value that the source does not set itself. Every slice before
DONE THROUGH has ended without being dead.

Example:
  holdfast slice source get shop-17 --watch`,
				gets(t.tool, seeSources, surface.GetSource, t.describe), outputFlag(), watchFlag()),
			t.verb("list", "list the sources and backfills by name",
				`Every slice before DONE THROUGH has ended without being dead. BEHIND is the time from there to the latest time that may
be pulled. OPEN is the number of slices that are ready or run, and DEAD the number of those that wait for a person.

Example:
  holdfast slice source list --watch`,
				lists(t.tool, "sources", "there is no source", "there are more sources; for the next page, add --after %s",
					t.columns(), surface.ListSources), outputFlag(), sortFlag(), watchFlag()),
			t.verb("delete NAME", "delete a source or a backfill",
				`The tasks that it has stored stay. Another source can then have the name.

Example:
  holdfast slice source delete shop-17`,
				changes(t.tool, openCheckedStore, t.delete), outputFlag()),
		),
		t.verb("list SOURCE", "list the open and the dead slices of a source, earliest first",
			`FROM and TO are the slice without the overlap. Slices that have ended are not listed.

Example:
  holdfast slice list shop-17 --state dead`,
			reads(t.tool, openCheckedStore, t.list), outputFlag(), sortFlag(), watchFlag()),
		t.verb("backfill SOURCE", "pull a source again in a range, and print the name of the backfill",
			`A backfill is a source of its own, with the present settings of the source. It stores slices from --from to --to in
order, and ends when all of them have ended. A dead slice keeps it. Get, change and delete it under its name. The source itself continues.

Example:
  holdfast slice backfill shop-17 --from 2030-01-01 --to 2030-01-31 --in-flight 2`,
			changes(t.tool, openCheckedStore, t.backfill), outputFlag()),
	)
}

// seeSources is the hint if there is no source.
const seeSources = "see: holdfast slice source list"

// setSource is the request of "slice source set".
type setSource struct {
	one[string]
	surface.SetSourceRequest
}

// Check returns an error if the request is invalid.
func (r setSource) Check() error {
	source, _, _ := strings.Cut(r.ID, ".backfill-") // the name of a backfill may be longer
	if err := plan.CheckName(source); err != nil {
		return err
	}
	return r.SetSourceRequest.Check()
}

func (t sliceCommands) set(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r setSource) error {
	set, _, err := surface.SetSource(ctx, b, by, r.ID, r.SetSourceRequest, nil)
	if err != nil {
		return err
	}
	t.warn(set.Warnings)
	if set.Type != "" {
		t.warnIfUnhandled(ctx, b, set.Type)
	}
	what := "created"
	if set.Before != nil {
		what = "changed"
	}
	t.say("source %s is %s", r.ID, what)
	switch {
	case r.ID == plan.DefaultSource:
		t.hint("to create a source with these settings: holdfast slice source set NAME")
	case set.Before != nil && r.Start.Given:
		t.hint(fmt.Sprintf("to pull earlier times: holdfast slice backfill %s --from TIME --to TIME", r.ID))
	case set.Before == nil:
		t.hint(fmt.Sprintf("to see it: holdfast slice source get %s; to see its open slices: holdfast slice list %[1]s", r.ID))
	}
	return stored(printItem(t.tool, c, set, func() error { return t.printRow(set.Source) }), "source %s is %s", r.ID, what)
}

func (t sliceCommands) columns() []column[surface.Source] {
	return []column[surface.Source]{
		{"source", func(s surface.Source) string { return s.Name }},
		{"type", func(s surface.Source) string { return s.Type }},
		{"every", func(s surface.Source) string { return durationText(s.Every) }},
		{"done through", func(s surface.Source) string { return t.stamp(s.DoneThrough) }},
		{"behind", behind},
		{"open", func(s surface.Source) string { return fmt.Sprint(s.Open) }},
		{"dead", func(s surface.Source) string { return fmt.Sprint(s.Dead) }},
	}
}

// printRow prints a source as a line of the list.
func (t sliceCommands) printRow(s surface.Source) error {
	return printTable(t.tool, []surface.Source{s}, "", t.columns())
}

// durationText returns a duration, or "" if there is none.
func durationText(d *plan.Duration) string {
	if d == nil {
		return ""
	}
	return shortDuration(*d)
}

// startText returns the start of a source without parts that are 0.
func startText(start string) string {
	if ago, err := time.ParseDuration(start); err == nil {
		return shortDuration(plan.Duration(ago))
	}
	return start
}

// behind returns how far a source is behind, or "" for the source default.
func behind(s surface.Source) string {
	if s.Next.IsZero() {
		return ""
	}
	return unit(time.Duration(s.Behind) * time.Second)
}

// describe prints a source as lines with a label and a text.
func (t sliceCommands) describe(s surface.Source, _ app.Source) error {
	setting := func(label, name, text string) field {
		if text != "" && !slices.Contains(s.Own, name) && s.Name != plan.DefaultSource {
			text += " (default)"
		}
		return field{label, text}
	}
	lines := []field{
		{"source", s.Name},
		{"backfill of", s.BackfillOf},
		{"from", t.absoluteAndRelative(s.From)},
		{"to", t.absoluteAndRelative(s.To)},
		{"note", s.Note},
		{"declared", map[bool]string{true: "by a program"}[s.Declared]},
		setting("type", "type", s.Type),
		setting("every", "every", durationText(s.Every)),
		setting("overlap", "overlap", durationText(&s.Overlap)),
		setting("lag", "lag", durationText(&s.Lag)),
		setting("start", "start", startText(s.Start)),
		setting("in flight", "in_flight", fmt.Sprint(s.InFlight)),
		setting("rate", "rate", unlessZero(s.Rate)),
		setting("queue", "queue", s.Queue),
		setting("max attempts", "max_attempts", unlessZero(s.MaxAttempts)),
		setting("timeout", "timeout", durationText(s.Timeout)),
		setting("retry strategy", "retry_strategy", string(s.RetryStrategy)),
		setting("retry base", "retry_base", durationText(s.RetryBase)),
		setting("retry max", "retry_max", durationText(s.RetryMax)),
	}
	if s.Name != plan.DefaultSource {
		lines = append(lines,
			field{"done through", t.absoluteAndRelative(s.DoneThrough)},
			field{"behind", behind(s) + map[bool]string{true: " (late)"}[s.Late]},
			field{"next", t.absoluteAndRelative(s.Next)},
			field{"open", fmt.Sprint(s.Open)},
			field{"dead", fmt.Sprint(s.Dead)},
			field{"done", fmt.Sprint(s.Done)},
			field{"last failure", s.LastFailure()})
	}
	err := t.fields(append(lines, field{"created", t.absoluteAndRelative(s.CreatedAt)}, field{"by", s.Actor}, field{"reason", s.Reason}))
	if err == nil && s.Dead > 0 {
		t.hint(fmt.Sprintf("to see the dead slices: holdfast slice list %s --state dead", s.Name))
	}
	return err
}

func (t sliceCommands) delete(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r one[string]) error {
	deleted, _, err := surface.DeleteSource(ctx, b, by, r.ID)
	if err != nil {
		return notFound(err, seeSources)
	}
	t.say("source %s is deleted; the tasks that it has stored stay", r.ID)
	return printItem(t.tool, c, deleted, func() error { return nil })
}

func (t sliceCommands) list(ctx context.Context, c *cli.Context, b *app.Backend, r surface.SliceQuery) error {
	found, next, err := surface.ListSlices(ctx, b, r)
	if err != nil {
		return notFound(err, seeSources)
	}
	err = printPage(t.tool, c, "slices", found, next, "no slice is "+map[string]string{"": "open or dead"}[r.State]+r.State,
		"there are more slices; for the next page, add --after %s",
		column[surface.Slice]{"from", func(s surface.Slice) string { return rangeTime(s.From) }},
		column[surface.Slice]{"to", func(s surface.Slice) string { return rangeTime(s.To) }},
		column[surface.Slice]{"state", func(s surface.Slice) string { return string(s.State) }},
		column[surface.Slice]{"task", func(s surface.Slice) string { return s.Task.String() }})
	if err != nil || !slices.ContainsFunc(found, func(s surface.Slice) bool { return s.State == store.ItemDead }) {
		return err
	}
	s, err := b.Source(ctx, r.Source)
	t.hint(fmt.Sprintf("to see why slices are dead: holdfast dead list --query key:%s; to pull one again: holdfast task retry ID",
		cmp.Or(s.Spec.BackfillOf, r.Source)))
	return err
}

// rangeTime returns an end of a slice, which is exact also on a terminal.
func rangeTime(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// sourceBackfill is the request of "slice backfill".
type sourceBackfill struct {
	one[string]
	surface.SourceBackfill
}

func (t sliceCommands) backfill(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r sourceBackfill) error {
	s, _, err := surface.BackfillSource(ctx, b, by, r.ID, r.SourceBackfill)
	if err != nil {
		return notFound(err, seeSources)
	}
	t.say("the backfill %s pulls %s from %s to %s", s.Name, r.ID, rangeTime(s.From), rangeTime(s.To))
	t.hint(fmt.Sprintf("to follow it: holdfast slice source get %s --watch; to end it: holdfast slice source delete %[1]s", s.Name))
	return stored(printText(t.tool, c, s, s.Name), "the backfill %s is stored", s.Name)
}
