package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

type scheduleCommands struct{ *tool }

func (t scheduleCommands) command() *cli.Command {
	return noun("schedule schedules", "store tasks at regular times: cron or intervals",
		t.verb("create NAME", "create a schedule, after showing its next ten times",
			`While a janitor runs, the schedule stores a task at each of its times. The cron expression has five fields, or
six with the second first, and follows the clocks of --timezone. An interval is in real time.

If no janitor ran at a time, --missed says which of the times that were missed run later: skip, one or all. Times that
are older than --catch-up do not run. While a task of the schedule is open, --overlap says what happens at the next
time: skip it, queue it until the task has ended, or a number N to store it if fewer than N tasks are open. A task that
is dead is not open.

The command prints the next ten times, and stores the schedule unless --dry-run is given. The exit code is 4 if there is
already a schedule with the name.

Example:
  holdfast schedule create nightly --cron "30 2 * * *" --timezone Europe/Berlin --type report
  holdfast schedule create ping --every 5m --type http --payload '{"url":"https://example.com/ping"}'`,
			changes(t.tool, openNewStore, t.create), outputFlag(), []cli.Flag{settings("allow-cidr", "webhook.allow_cidrs", "CIDR")}),
		t.verb("list", "list the schedules and backfills by name",
			`WHEN is the cron expression or the interval. NEXT is the next time of a schedule that is not paused, and LAST the
time of its last task. RUNS is the number of its tasks.

Example:
  holdfast schedule list --watch`,
			lists(t.tool, "schedules", "there is no schedule", "there are more schedules; for the next page, add --after %s",
				t.columns(), surface.ListSchedules), outputFlag(), sortFlag(), watchFlag()),
		t.verb("get NAME", "show a schedule with its next and last times",
			`Example:
  holdfast schedule get nightly`,
			gets(t.tool, seeSchedules, surface.GetSchedule, t.describe), outputFlag(), watchFlag()),
		t.verb("edit NAME", "change a schedule, after showing its next ten times",
			`Values without a flag stay. If the edit changes the times, the schedule runs from now on: times before the edit do not
run any more. A paused schedule stays paused, and tasks that are stored already stay as they are.

Example:
  holdfast schedule edit nightly --cron "0 4 * * *" --jitter 10m --reason "the backup runs until 3:30"`,
			changes(t.tool, openCheckedStore, t.edit), outputFlag(), []cli.Flag{settings("allow-cidr", "webhook.allow_cidrs", "CIDR")}),
		t.verb("pause NAME", "pause a schedule until somebody resumes it",
			`Tasks that are stored already run. The times during the pause do not run after it, except those of a backfill.

Example:
  holdfast schedule pause nightly --reason "moving the database"`,
			alters(t.tool, seeSchedules, "schedule %s is paused; tasks that it has stored run", "to resume it: holdfast schedule resume %s",
				(*app.Backend).PauseSchedule, surface.ScheduleOf, t.columns()...), outputFlag()),
		t.verb("resume NAME", "end the pause of a schedule",
			`Example:
  holdfast schedule resume nightly`,
			alters(t.tool, seeSchedules, "schedule %s is running", "", (*app.Backend).ResumeSchedule, surface.ScheduleOf, t.columns()...), outputFlag()),
		t.verb("run NAME", "store a task of a schedule now, and print its id",
			`The schedule may be paused or have open tasks. The task counts as one of the schedule, so --overlap takes it into
account. The next times do not change.

Example:
  holdfast schedule run nightly`,
			changes(t.tool, openCheckedStore, t.run), outputFlag()),
		t.verb("backfill NAME", "run the times of a schedule in a range, and print the name of the backfill",
			`A backfill is a schedule of its own, which runs the times from --from to --to in order and then ends. Pause, resume,
get and delete it under its name. Times of which the store has a task do not run, unless --again is given.

Example:
  holdfast schedule backfill nightly --from 2030-01-01 --to 2030-01-31 --in-flight 2`,
			changes(t.tool, openCheckedStore, t.backfill), outputFlag()),
		t.verb("delete NAME", "delete a schedule or a backfill",
			`The tasks that it has stored stay. Another schedule can then have the name.

Example:
  holdfast schedule delete nightly`,
			alters(t.tool, seeSchedules, "schedule %s is deleted; the tasks that it has stored stay", "", (*app.Backend).DeleteSchedule, surface.ScheduleOf), outputFlag()),
	)
}

// scheduleFlags are the flags that "schedule create" and "schedule edit" share.
type scheduleFlags struct {
	Name string `arg:"0"`
	surface.ScheduleTimes
	surface.ScheduleTask
	Payload string   `json:"payload" flag:"JSON" doc:"The input of the handler: JSON, @FILE, or - for stdin; default null."`
	Tag     []string `json:"tag" flag:"TAG" doc:"Find the tasks by this tag; may be repeated."`
	DryRun  bool     `json:"dry_run" flag:"-" doc:"Store nothing; only print the next ten times."`
	Reason  string   `json:"reason" flag:"TEXT" doc:"Why, for the audit log; at most 1000 characters."`
}

// task returns the description of the tasks.
func (t scheduleCommands) task(r scheduleFlags, maxPayload int) (task surface.ScheduleTask, err error) {
	task = r.ScheduleTask
	if len(r.Tag) > 0 {
		task.Tags = r.Tag
		if slices.Equal(r.Tag, []string{none}) {
			task.Tags = []string{}
		}
	}
	if r.Payload != "" {
		task.Payload, err = t.input("payload", r.Payload, maxPayload)
	}
	return task, err
}

// newScheduleRequest is the request of "schedule create".
type newScheduleRequest struct {
	scheduleFlags
	RunAtStart bool `json:"run_at_start" flag:"-" doc:"Also store a task when the schedule is created."`
}

func (r newScheduleRequest) request() surface.NewSchedule {
	return surface.NewSchedule{
		Name: r.Name, ScheduleTimes: r.ScheduleTimes, RunAtStart: r.RunAtStart, Task: r.ScheduleTask, DryRun: r.DryRun, Reason: r.Reason,
	}
}

// Check returns an error if the request is invalid, before a new file is created for it.
func (r newScheduleRequest) Check() error {
	spec, err := r.request().Spec()
	return cmp.Or(plan.CheckName(r.Name), err, spec.Validate(0))
}

func (t scheduleCommands) create(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r newScheduleRequest) (err error) {
	request := r.request()
	if request.Task, err = t.task(r.scheduleFlags, b.Config.Producer.MaxPayload); err != nil {
		return err
	}
	d, s, err := surface.CreateSchedule(ctx, b, by, request, t.showTimes(r.DryRun))
	if err != nil {
		return err
	}
	t.warnIfUnhandled(ctx, b, d.Task.Type)
	if r.DryRun {
		return t.printDryRun(c, d)
	}
	t.say("schedule %s is created", r.Name)
	t.hint(fmt.Sprintf("to see it: holdfast schedule get %s; to store a task now: holdfast schedule run %[1]s", r.Name))
	return stored(printItem(t.tool, c, d, func() error { return t.printRow(s) }), "schedule %s is created", r.Name)
}

// showTimes returns a function that prints the next times of a schedule before it is stored. For a dry run it returns
// nil, because the times are the output of the command then.
func (t scheduleCommands) showTimes(dryRun bool) func(surface.ScheduleDetails) {
	if dryRun {
		return nil
	}
	return func(d surface.ScheduleDetails) {
		t.say("the next times of %s%s:", d.Name, map[bool]string{true: ", when it is resumed"}[d.State == store.PlanPaused])
		writeTimes(t.stderr, "  ", d.Next)
	}
}

// writeTimes writes a line for each time, with its offset and the name of its time zone.
func writeTimes(w io.Writer, indent string, times []time.Time) {
	for _, at := range times {
		fmt.Fprintln(w, indent+clockText(at))
	}
}

// clockText returns a time as the clock of its zone shows it.
func clockText(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	text := at.Format("Mon " + time.RFC3339)
	if name, _ := at.Zone(); strings.Trim(name, "+-0123456789") != "" {
		text += " " + name
	}
	return text
}

// printDryRun prints a schedule that is not stored.
func (t scheduleCommands) printDryRun(c *cli.Context, d surface.ScheduleDetails) error {
	t.say("nothing is stored")
	return printItem(t.tool, c, d, func() error {
		writeTimes(t.stdout, "", d.Next)
		return nil
	})
}

func (t scheduleCommands) edit(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r scheduleFlags) error {
	request := surface.ScheduleEdit{ScheduleTimes: r.ScheduleTimes, DryRun: r.DryRun, Reason: r.Reason}
	var err error
	if request.Task, err = t.task(r, b.Config.Producer.MaxPayload); err != nil {
		return err
	}
	d, s, err := surface.EditSchedule(ctx, b, by, r.Name, request, nil, t.showTimes(r.DryRun))
	switch {
	case err != nil:
		return notFound(err, seeSchedules)
	case r.DryRun:
		return t.printDryRun(c, d)
	}
	t.say("schedule %s is changed", r.Name)
	return stored(printItem(t.tool, c, d, func() error { return t.printRow(s) }), "schedule %s is changed", r.Name)
}

// seeSchedules is the hint if there is no schedule.
const seeSchedules = "see: holdfast schedule list"

func (t scheduleCommands) columns() []column[surface.Schedule] {
	return []column[surface.Schedule]{
		{"schedule", func(s surface.Schedule) string { return s.Name }},
		{"state", func(s surface.Schedule) string { return string(s.State) }},
		{"when", func(s surface.Schedule) string { return cmp.Or(s.Cron, "every "+shortDuration(s.Every)) }},
		{"next", func(s surface.Schedule) string { return t.stamp(s.NextRunAt) }},
		{"last", func(s surface.Schedule) string {
			if len(s.Recent) == 0 {
				return ""
			}
			return t.stamp(s.Recent[0].At)
		}},
		{"runs", func(s surface.Schedule) string { return fmt.Sprint(s.Runs) }},
		{"type", func(s surface.Schedule) string { return s.Task.Type }},
	}
}

// printRow prints a schedule as a line of the list.
func (t scheduleCommands) printRow(s app.Schedule) error {
	return printTable(t.tool, []surface.Schedule{surface.ScheduleOf(s)}, "", t.columns())
}

// shortDuration returns a duration without parts that are 0, such as 36h for 36h0m0s.
func shortDuration(d plan.Duration) string {
	text := time.Duration(d).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// describe prints a schedule as lines with a label and a text.
func (t scheduleCommands) describe(d surface.ScheduleDetails, s app.Schedule) error {
	interval := func(d plan.Duration) string {
		if d == 0 {
			return ""
		}
		return shortDuration(d)
	}
	inZone := func(at time.Time) string {
		if at.IsZero() || len(d.Next) == 0 {
			return t.absoluteAndRelative(at)
		}
		return clockText(at.In(d.Next[0].Location()))
	}
	due := ""
	if d.Jitter > 0 {
		due = inZone(s.DueAt())
	}
	after := ""
	if d.PauseAfter > 0 {
		after = plural(d.PauseAfter, "dead task") + " in a row"
	}
	task := d.Task
	lines := []field{
		{"schedule", d.Name},
		{"state", string(d.State)},
		{"paused by", d.PausedBy},
		{"last failure", d.LastFailure()},
		{"backfill of", d.BackfillOf},
		{"again", yes(d.Again)},
		{"note", d.Note},
		{"owner", d.Owner},
		{"cron", d.Cron},
		{"every", interval(d.Every)},
		{"timezone", cmp.Or(d.Timezone, map[bool]string{true: "UTC"}[d.Cron != ""])},
		{"start", inZone(d.Start)},
		{"end", inZone(d.End)},
		{"run at start", yes(d.RunAtStart)},
		{"missed", string(d.Missed)},
		{"catch up", shortDuration(d.CatchUp)},
		{"overlap", d.Overlap.String()},
		{"jitter", interval(d.Jitter)},
		{"pause after", after},
		{"type", task.Type},
		{"queue", task.Queue},
		{"priority", unlessNormal(task.Priority)},
		{"max attempts", unlessZero(task.MaxAttempts)},
		{"key", task.Key},
		{"ordered", yes(task.Ordered)},
		{"topic", task.Topic},
		{"tags", strings.Join(task.Tags, " ")},
		{"runs", fmt.Sprint(d.Runs)},
		{"skipped", unlessZero(d.Skipped)},
		{"missed runs", unlessZero(d.MissedRuns)},
		{"created", t.absoluteAndRelative(d.CreatedAt)},
		{"by", d.Actor},
		{"reason", d.Reason},
		{"waiting", inZone(d.Waiting)},
		{"due", due},
	}
	label := "next"
	if d.State == store.PlanPaused {
		label = "if resumed"
	}
	for _, at := range d.Next {
		lines = append(lines, field{label, clockText(at)})
	}
	for _, run := range d.Recent {
		text := fmt.Sprintf("%s task %s", inZone(run.At), run.Task)
		if slices.Contains(d.Open, run) {
			text += ", open"
		}
		lines = append(lines, field{"last", text})
	}
	if err := t.fields(lines); err != nil {
		return err
	}
	return t.block("payload", indented(task.Payload))
}

func (t scheduleCommands) run(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r one[string]) error {
	ran, err := surface.RunSchedule(ctx, b, by, r.ID)
	if err != nil {
		return notFound(err, seeSchedules)
	}
	t.warnIfUnhandled(ctx, b, ran.Type)
	return stored(printText(t.tool, c, ran, ran.Task.String()), "task %s is stored", ran.Task)
}

// backfillRequest is the request of "schedule backfill".
type backfillRequest struct {
	one[string]
	surface.Backfill
}

func (t scheduleCommands) backfill(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r backfillRequest) error {
	started, _, err := surface.BackfillSchedule(ctx, b, by, r.ID, r.Backfill)
	if err != nil {
		return notFound(err, seeSchedules)
	}
	times := plural(started.Times, "time")
	if started.Times == surface.MaxCountedTimes {
		times = "at least " + times
	}
	t.say("the backfill %s has %s, from %s to %s", started.Name, times, clockText(started.From), clockText(started.To))
	t.hint(fmt.Sprintf("to follow it: holdfast schedule get %s --watch; to end it: holdfast schedule delete %[1]s", started.Name))
	return stored(printText(t.tool, c, started, started.Name), "the backfill %s is stored", started.Name)
}
