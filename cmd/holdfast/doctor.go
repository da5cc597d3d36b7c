package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
)

func (t *tool) doctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "check everything, from the configuration to the work that waits, and say what to do",
		Description: `Checks in this order: the configuration; the store, its clock, its settings that decide whether accepted
tasks can get lost, its schema; the broker, its version and alarms, the queues and their arguments; and
whether work gets done: workers, janitors, lanes, receipts, dead letters. Under each check that is not ok
stands what to do. Nothing is changed.

A warning is something that works and may hurt later. The exit code is 0 if nothing failed, 7 if a check
failed, and 6 if a server did not answer. With --strict a warning counts as a failure.

Example:
  holdfast doctor
  holdfast doctor --strict -o json`,
		Flags:  []cli.Flag{outputFlag(), &cli.BoolFlag{Name: "strict", Usage: "fail on warnings too"}},
		Action: t.do(t.doctor),
	}
}

// checked is a finding as it is printed.
type checked struct {
	Check  string         `json:"check"`
	Result holdfast.Grade `json:"result"`
	Detail string         `json:"detail"`
	Remedy string         `json:"remedy"`
}

func (t *tool) doctor(ctx context.Context, c *cli.Context) error {
	examination, err := t.examination(ctx, c)
	if err != nil {
		return err
	}
	results := make([]checked, len(examination.Findings))
	for i, f := range examination.Findings {
		results[i] = checked{f.Check, f.Grade, f.Detail, f.Remedy}
	}
	if chosen, _ := format(c); chosen == asTable {
		err = t.remedies(results)
	} else {
		err = list(t, c, results, "")
	}
	if err != nil {
		return err
	}
	return verdict(examination, c.Bool("strict"))
}

// examination begins with the configuration, whose mistakes are findings like any other.
func (t *tool) examination(ctx context.Context, c *cli.Context) (app.Examination, error) {
	cfg, err := t.load(c)
	if _, typed := errors.AsType[*failure](err); typed {
		return app.Examination{}, err
	}
	if err == nil {
		return app.Examine(ctx, cfg, t.quietLogger(cfg)), ctx.Err()
	}
	var e app.Examination
	for _, one := range parts(err) {
		e.Findings = append(e.Findings, holdfast.Finding{Check: "configuration", Grade: holdfast.GradeFailed,
			Detail: t.sentence(one), Remedy: "holdfast config show tells where each value came from"})
	}
	return e, nil
}

// remedies prints the table, with what to do under each line that is not ok.
func (t *tool) remedies(results []checked) error {
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

// verdict is the exit code of an examination.
func verdict(e app.Examination, strict bool) error {
	count := map[holdfast.Grade]int{}
	for _, f := range e.Findings {
		count[f.Grade]++
	}
	failed, warned := count[holdfast.GradeFailed], count[holdfast.GradeWarning]
	switch text := fmt.Sprintf("%s failed, %s", several(failed, "check"), several(warned, "warning")); {
	case e.Unreachable:
		return &failure{err: errors.New(text + "; a server did not answer"), code: exitUnavailable}
	case failed > 0 || strict && warned > 0:
		return &failure{err: errors.New(text), code: exitCheck}
	}
	return nil
}
