package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/surface"
)

// maxStepValue is the maximum number of characters of the value of a step in a table.
const maxStepValue = 200

// describeValues prints the values of a task whose number of the attempt is current.
func (t taskCommands) describeValues(v surface.Values, current int) error {
	t.relative = isTerminal(t.stdout)
	var progress, checkpoint string
	if v.Progress != nil {
		progress = strings.TrimSpace(fmt.Sprintf("%d%% %s", v.Progress.Percent, v.Progress.Note)) + ", " + t.stamp(v.Progress.At)
		if v.Progress.Attempt != current {
			progress += fmt.Sprintf(", by attempt %d", v.Progress.Attempt)
		}
	}
	if v.Checkpoint != nil {
		checkpoint = fmt.Sprintf("by attempt %d, %s:\n%s%s", v.Checkpoint.Attempt, t.stamp(v.Checkpoint.At), strings.Repeat(" ", labelWidth), indented(v.Checkpoint.Value))
	}
	t.relative = false
	err := errors.Join(t.block("output", indented(v.Output)), t.paragraph("progress", progress), t.block("checkpoint", checkpoint))
	if err != nil || len(v.Steps) == 0 {
		return err
	}
	fmt.Fprintln(t.stdout)
	return printTable(t.tool, v.Steps, "", []column[surface.Step]{
		{"step", func(s surface.Step) string { return s.Name }},
		{"attempt", func(s surface.Step) string { return fmt.Sprint(s.Attempt) }},
		{"at", func(s surface.Step) string { return t.stamp(s.At) }},
		{"value", func(s surface.Step) string { return clipped(string(s.Value.Value), maxStepValue) }},
	})
}

// paragraph prints a label and a sentence, which it wraps on a terminal.
func (t *terminal) paragraph(name, sentence string) error {
	lines := strings.Split(t.wrapped(singleLine(sentence)), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return t.block(name, hanging(strings.Join(lines, "\n")))
}

func (t taskCommands) output(ctx context.Context, c *cli.Context, b *app.Backend, r one[holdfast.TaskID]) error {
	output, err := b.Output(ctx, r.ID)
	if err != nil {
		return err
	}
	return printItem(t.tool, c, output, nil)
}
