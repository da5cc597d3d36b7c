package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/explain"
)

func (t taskCommands) explain(ctx context.Context, c *cli.Context, b *app.Backend, r oneTask) error {
	e, err := b.Explain(ctx, r.ID)
	if err != nil {
		return err
	}
	return one(t.tool, c, e, func() error { return t.describeExplanation(c, e) })
}

// describeExplanation prints an explanation as lines with a label and a text, and the attempts as a table.
func (t taskCommands) describeExplanation(c *cli.Context, e explain.Explanation) error {
	var text strings.Builder
	paragraph := func(label string, lines []string) {
		for _, line := range lines {
			for part := range strings.SplitSeq(t.wrapped(singleLine(line)), "\n") {
				fmt.Fprintf(&text, "%-*s%s\n", labelWidth, label, strings.TrimSpace(part))
				label = ""
			}
		}
	}
	var causes []string
	for _, cause := range e.Causes {
		causes = append(causes, cause.Text)
	}
	paragraph("state", []string{string(e.State)})
	paragraph("why", causes)
	if !e.NextStart.IsZero() {
		paragraph("due", []string{t.absoluteAndRelative(e.NextStart)})
	}
	paragraph("next", e.Next)
	paragraph("limits", e.Limits)
	if _, err := t.stdout.Write([]byte(text.String())); err != nil || len(e.Attempts) == 0 {
		return err
	}
	fmt.Fprintln(t.stdout)
	return list(t.tool, c, "attempts", e.Attempts, "", t.attemptColumns()...)
}
