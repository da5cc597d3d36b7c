package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/doctor"
)

func (t doctorCommand) command() *cli.Command {
	return t.verb("doctor", "check the configuration, the servers and the progress of tasks, and suggest remedies",
		`Checks in this order:

  1. the configuration
  2. the store: its clock, its schema, and settings that could lose accepted tasks
  3. the broker: its version and alarms, the AMQP queues and their arguments
  4. the progress of tasks: workers, janitors, queues, outbox entries, dead letters

Each check that is not ok is followed by a remedy. The command changes nothing.

A warning is about something that works now but may cause problems later. The exit code is 0 if no check failed, 7 if a
check failed, and 6 if a server did not answer. With --strict a warning counts as a failure.

Example:
  holdfast doctor
  holdfast doctor --strict -o json`,
		plain(t.run), outputFlag(), []cli.Flag{&cli.BoolFlag{Name: "strict", Usage: "count warnings as failures"}})
}

// checkRow is a check as the command prints it.
type checkRow struct {
	Check  string          `json:"check"`
	Result doctor.Severity `json:"result"`
	Detail string          `json:"detail"`
	Remedy string          `json:"remedy"`
}

func (t doctorCommand) run(ctx context.Context, c *cli.Context) error {
	report, err := t.examine(ctx, c)
	if err != nil {
		return err
	}
	results := make([]checkRow, len(report.Checks))
	for i, c := range report.Checks {
		results[i] = checkRow{c.Name, c.Severity, c.Detail, hintText(c.Remedy)}
	}
	if chosen, _ := format(c); chosen == asTable {
		err = t.print(results)
	} else {
		err = list(t.tool, c, "checks", results, "")
	}
	if err != nil {
		return err
	}
	return checksError(report, c.Bool("strict"))
}

// examine runs the checks. If the configuration has errors, each of them is a failed check, and there are no other
// checks.
func (t doctorCommand) examine(ctx context.Context, c *cli.Context) (doctor.Report, error) {
	cfg, err := t.load(c)
	if _, usage := errors.AsType[*failure](err); usage {
		return doctor.Report{}, err
	}
	if err == nil {
		return app.Examine(ctx, cfg, t.quietLogger(cfg)), ctx.Err()
	}
	var r doctor.Report
	for _, one := range parts(err) {
		r.Checks = append(r.Checks, doctor.Check{Name: "configuration", Severity: doctor.Failed,
			Detail: t.message(one), Remedy: holdfast.Hint{Kind: holdfast.HintShowSettings}})
	}
	return r, nil
}

// print prints the table, with the remedy below each check that has one.
func (t doctorCommand) print(results []checkRow) error {
	head, rows := cells(results, []column[checkRow]{
		{"check", func(r checkRow) string { return r.Check }},
		{"result", func(r checkRow) string { return string(r.Result) }},
		{"detail", func(r checkRow) string { return r.Detail }},
	})
	var lines []table.Row
	for i, row := range rows {
		lines = append(lines, row)
		if remedy := singleLine(results[i].Remedy); remedy != "" {
			lines = append(lines, table.Row{"", "", "-> " + remedy})
		}
	}
	return t.table(head, lines)
}

// checksError returns an error with the exit code of a report, or nil if the exit code is 0.
func checksError(r doctor.Report, strict bool) error {
	failed, warned := r.Count(doctor.Failed), r.Count(doctor.Warning)
	switch text := fmt.Sprintf("%s failed, %s", plural(failed, "check"), plural(warned, "warning")); {
	case r.Unreachable:
		return &failure{err: errors.New(text + "; a server did not answer"), code: exitUnavailable}
	case failed > 0 || strict && warned > 0:
		return &failure{err: errors.New(text), code: exitCheck}
	}
	return nil
}
