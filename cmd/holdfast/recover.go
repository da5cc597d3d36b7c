package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/janitor"
	"github.com/holdfastq/holdfast/surface"
)

type recoverCommand struct{ *tool }

func (t recoverCommand) command() *cli.Command {
	return t.verb("recover", "replace what the broker has lost",
		`After RabbitMQ has lost its data, running janitors declare the AMQP queues again and publish a new ticket for
each waiting task. This command shows that work, or does it at once.

  --plan  prints which AMQP queues are missing, how many tickets are lost, and how long it takes; changes nothing
  --run   declares the missing AMQP queues, renews lost tickets, takes back the tasks of ended workers,
          repairs what "verify tasks" finds, and publishes the tickets of all due tasks

A run may be interrupted, repeated, and started beside workers and janitors. No task runs twice because of it. If
somebody has purged a queue, --queue treats all its tickets as lost. If the tasks are in a file, there is nothing to
recover.

Example:
  holdfast recover --plan
  holdfast recover --run
  holdfast recover --run --queue default`,
		reads(t.tool, app.Attach, t.run), outputFlag())
}

// recoverRequest is the request of recover.
type recoverRequest struct {
	Plan   bool     `json:"plan" flag:"-" doc:"Print what is missing, and change nothing."`
	Run    bool     `json:"run" flag:"-" doc:"Recover now."`
	Queues []string `json:"queue" flag:"QUEUE" doc:"Treat the tickets of this queue as lost, although it exists."`
}

// Check returns an error unless the request has either --plan or --run.
func (r recoverRequest) Check() error {
	if r.Plan == r.Run {
		return usage("set either --plan or --run")
	}
	return nil
}

func (t recoverCommand) run(ctx context.Context, c *cli.Context, b *app.Backend, r recoverRequest) error {
	if path, embedded := b.Embedded(); embedded {
		t.say("nothing to recover: the broker of %s is in the memory of holdfast serve, which publishes a ticket for every waiting task when it starts", path)
		if r.Run {
			return printItem(t.tool, c, surface.RecoveredOf(janitor.RecoveryReport{}), func() error { return nil })
		}
		return t.printPlan(c, surface.RecoveryPlanOf(janitor.RecoveryPlan{}))
	}
	if err := b.Ping(ctx, brokerTimeout); err != nil {
		return err
	}
	if r.Plan {
		plan, err := b.PlanRecovery(ctx, r.Queues)
		if err != nil {
			return err
		}
		return t.printPlan(c, surface.RecoveryPlanOf(plan))
	}
	return t.recover(ctx, c, b, r.Queues)
}

func (t recoverCommand) printPlan(c *cli.Context, plan surface.RecoveryPlan) error {
	return printItem(t.tool, c, plan, func() error { return t.describePlan(c, plan) })
}

func (t recoverCommand) describePlan(c *cli.Context, plan surface.RecoveryPlan) error {
	if plan.Objects == 0 {
		return nil
	}
	if plan.BrokerLost {
		t.say("the broker has lost its data, or is a new one")
	}
	t.say("%d of %s are missing", len(plan.Missing), plural(plan.Objects, "AMQP object"))
	t.say("lost tickets: %d, other due tasks: %d; a recovery takes about %s", plan.LostTickets, plan.DueTasks, max(duration(plan.ExpectedSeconds), time.Second).Round(time.Second))
	return printList(t.tool, c, "queues", plan.Queues, "",
		column[surface.QueueRecovery]{"queue", func(r surface.QueueRecovery) string { return r.Queue }},
		column[surface.QueueRecovery]{"missing", func(r surface.QueueRecovery) string { return strings.Join(r.Missing, " ") }},
		column[surface.QueueRecovery]{"ticketed tasks", func(r surface.QueueRecovery) string { return fmt.Sprint(r.TicketedTasks) }},
		column[surface.QueueRecovery]{"lost tickets", func(r surface.QueueRecovery) string { return fmt.Sprint(r.LostTickets) }},
		column[surface.QueueRecovery]{"due tasks", func(r surface.QueueRecovery) string { return fmt.Sprint(r.DueTasks) }})
}

func (t recoverCommand) recover(ctx context.Context, c *cli.Context, b *app.Backend, queues []string) error {
	shown := recoveryProgress{tool: t.tool}
	report, err := b.Recover(ctx, queues, shown.show)
	shown.end()
	switch {
	case err != nil && ctx.Err() != nil:
		return interrupted("run the command again to continue")
	case err != nil:
		return fmt.Errorf("%w; run the command again to continue", err)
	}
	err = printText(t.tool, c, surface.RecoveredOf(report),
		fmt.Sprintf("declared %s, renewed %s, repaired %s, published %s", plural(len(report.Missing), "AMQP object"),
			plural(int(report.Renewed), "ticket"), plural(int(report.Repaired), "other task"), plural(int(report.Published), "ticket")))
	return stored(err, "the recovery is complete")
}

// recoveryProgress shows the progress of a recovery: a bar on a terminal, lines elsewhere.
type recoveryProgress struct {
	tool  *tool
	bar   *progressbar.ProgressBar
	phase janitor.RecoveryPhase
	began time.Time // start of the phase
	said  time.Time // time of the last line
}

// progressEvery is the time between two lines of progress.
const progressEvery = 2 * time.Second

func (p *recoveryProgress) show(now janitor.RecoveryProgress) {
	if now.Phase != p.phase {
		p.end()
		p.phase, p.began, p.said = now.Phase, time.Now(), time.Time{}
		if what := "recover: " + string(now.Phase); now.Total > 0 {
			p.bar = p.tool.countProgress(now.Total, what)
		} else {
			p.bar = p.tool.bar(-1, what)
		}
	}
	if p.bar != nil {
		_ = p.bar.Set64(now.Done) // an error of the bar does not matter
		return
	}
	if time.Since(p.said) < progressEvery {
		return
	}
	p.said = time.Now()
	text := "recover: " + string(now.Phase)
	if now.Total > 0 {
		text += fmt.Sprintf(" %d of %d tickets", now.Done, now.Total)
	}
	if spent := time.Since(p.began); now.Done > 0 && now.Total > now.Done {
		left := time.Duration(float64(spent) / float64(now.Done) * float64(now.Total-now.Done))
		text += fmt.Sprintf(", about %s left", left.Round(time.Second))
	}
	p.tool.say("%s", text)
}

func (p *recoveryProgress) end() {
	if p.bar != nil {
		_ = p.bar.Finish() // an error of the bar does not matter
	}
}
