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

// doctorCommand is the command doctor.
type doctorCommand struct{ *tool }

func (t doctorCommand) command() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "check everything, from the configuration to the work that waits, and say what to do",
		Description: `Checks in this order: the configuration; the store, its clock, its settings that decide whether accepted
tasks can get lost, its schema; the broker, its version and alarms, the queues and their arguments; and
whether work gets done: workers, janitors, lanes, receipts, dead letters. Each check that is not ok is
followed by a remedy. Nothing is changed.

A warning is something that works and may hurt later. The exit code is 0 if nothing failed, 7 if a check
failed, and 6 if a server did not answer. With --strict a warning counts as a failure.

Example:
  holdfast doctor
  holdfast doctor --strict -o json`,
		Flags:  []cli.Flag{outputFlag(), &cli.BoolFlag{Name: "strict", Usage: "fail on warnings too"}},
		Action: t.do(t.run),
	}
}

// checked is a check as it is printed.
type checked struct {
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
	results := make([]checked, len(report.Checks))
	for i, c := range report.Checks {
		results[i] = checked{c.Name, c.Severity, c.Detail, wording(c.Remedy)}
	}
	if chosen, _ := format(c); chosen == asTable {
		err = t.print(results)
	} else {
		err = list(t.tool, c, results, "")
	}
	if err != nil {
		return err
	}
	return verdict(report, c.Bool("strict"))
}

// examine begins with the configuration. Each mistake in it is a check that failed.
func (t doctorCommand) examine(ctx context.Context, c *cli.Context) (doctor.Report, error) {
	cfg, err := t.load(c)
	if _, typed := errors.AsType[*failure](err); typed {
		return doctor.Report{}, err
	}
	if err == nil {
		return app.Examine(ctx, cfg, t.quietLogger(cfg)), ctx.Err()
	}
	var r doctor.Report
	for _, one := range parts(err) {
		r.Checks = append(r.Checks, doctor.Check{Name: "configuration", Severity: doctor.Failed,
			Detail: t.sentence(one), Remedy: holdfast.Hint{Kind: holdfast.HintShowSettings}})
	}
	return r, nil
}

// print prints the table, with what to do under each line that is not ok.
func (t doctorCommand) print(results []checked) error {
	head, rows := cells(results, []column[checked]{
		{"check", func(r checked) string { return r.Check }},
		{"result", func(r checked) string { return string(r.Result) }},
		{"detail", func(r checked) string { return r.Detail }},
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

// verdict is the exit code of a report.
func verdict(r doctor.Report, strict bool) error {
	failed, warned := r.Count(doctor.Failed), r.Count(doctor.Warning)
	switch text := fmt.Sprintf("%s failed, %s", several(failed, "check"), several(warned, "warning")); {
	case r.Unreachable:
		return &failure{err: errors.New(text + "; a server did not answer"), code: exitUnavailable}
	case failed > 0 || strict && warned > 0:
		return &failure{err: errors.New(text), code: exitCheck}
	}
	return nil
}
