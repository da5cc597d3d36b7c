package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/store"
)

// Options configures a campaign. Root, Run, Builds, Self, For, Rate and Out are required.
type Options struct {
	Root   string        // root folder of the project
	Run    string        // an empty folder for servers, programs and logs
	Builds [2]string     // paths of two holdfast programs, an older one and a newer one
	Names  [2]string     // descriptions of the two programs for the report
	Self   string        // path of this program, which is also the producer (argument produce) and the recorder (record)
	Seed   uint64        // seed of the plan
	For    time.Duration // time after which no act begins
	Only   []Kind        // the kinds of faults; empty means all
	Rate   int           // tasks per second of all producers
	// Soak measures memory, tables and connections during the campaign. It spares one worker and one janitor, and keeps
	// finished tasks for one minute only.
	Soak bool
	Out  io.Writer // receives the progress
}

const (
	queue      = holdfast.DefaultQueue
	workers    = 3
	janitors   = 2
	producers  = 2
	readyLimit = 90 * time.Second
	// settleLimit limits the time from the end of the last fault until all tasks are final. It includes the longest
	// task.
	settleLimit = 5 * time.Minute
)

type campaign struct {
	Options
	servers    *servers
	deployment *deployment
	backend    *app.Backend
	began      time.Time
	struck     []Struck
	// problems are the faults that could not be inflicted or repaired as planned.
	problems []string
}

// Run starts a deployment, inflicts the faults of the plan on it and returns the records. It returns an error if the
// campaign could not be carried out. A broken promise is not an error: it follows from the records, see [Judge]. Run
// removes the deployment before it returns.
func Run(ctx context.Context, o Options) (books Books, err error) {
	c := &campaign{Options: o, servers: &servers{root: o.Root, run: o.Run}}
	defer func() {
		if c.deployment != nil {
			c.deployment.stop()
		}
		err = errors.Join(err, c.servers.wipe())
	}()
	if err := c.assemble(ctx); err != nil {
		return books, err
	}
	defer c.backend.Close()
	books.Broker, books.Database, err = c.servers.versions(ctx)
	if err != nil {
		return books, err
	}
	books.Began = time.Now()
	performing, stop := context.WithCancel(ctx)
	defer stop()
	sampled := make(chan []Sample, 1)
	if o.Soak {
		go func() { sampled <- c.sample(performing) }()
	} else {
		sampled <- nil
	}
	paused := make(chan []Paused, 1)
	go func() { paused <- c.pause(performing) }()
	err = c.perform(ctx)
	stop()
	books.Samples, books.Pruned, books.Pauses = <-sampled, o.Soak, <-paused
	if err != nil {
		return books, err
	}
	books.Struck, books.Problems, books.Took = c.struck, c.problems, time.Since(books.Began)
	if err := c.settle(ctx); err != nil {
		c.say("%v", err) // Judge lists the tasks
	}
	return books, c.read(ctx, &books)
}

// say prints a line of progress with the time since the first act.
func (c *campaign) say(format string, arguments ...any) {
	at := ""
	if !c.began.IsZero() {
		at = fmt.Sprintf("%6.1f s  ", time.Since(c.began).Seconds())
	}
	fmt.Fprintf(c.Out, at+format+"\n", arguments...)
}

// assemble starts the servers and all processes.
func (c *campaign) assemble(ctx context.Context) error {
	c.say("starting three RabbitMQ nodes, PostgreSQL and its replica")
	if err := c.servers.up(ctx); err != nil {
		return err
	}
	database, err := c.servers.databaseURL(ctx)
	if err != nil {
		return err
	}
	urls, err := c.servers.cluster(ctx, "urls")
	if err != nil {
		return err
	}
	environment := settings(database, strings.Fields(urls))
	if c.Soak {
		environment = append(environment, "HOLDFAST_JANITOR_KEEP_DONE=1m", "HOLDFAST_JANITOR_KEEP_WORKERS=1m")
	}
	cfg, err := configs.Load(configs.Options{Env: environment})
	if err != nil {
		return err
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	if _, err := app.Migrate(ctx, cfg, log); err != nil {
		return err
	}
	if c.backend, err = app.Open(ctx, cfg, log); err != nil {
		return err
	}
	limit := store.Limit{Scope: store.Scope{Subject: store.Subject{Key: limitedKey}}, Concurrency: limitedAtOnce}
	if _, err := c.backend.Store.SetLimit(ctx, store.Actor{Name: "campaign", Surface: store.CommandLine}, limit.Change()); err != nil {
		return err
	}
	return c.startProcesses(ctx, environment)
}

// startProcesses creates the slots of all processes and starts the processes.
func (c *campaign) startProcesses(ctx context.Context, environment []string) error {
	c.deployment = &deployment{servers: c.servers, builds: c.Builds, self: c.Self, environment: environment, rate: c.Rate / producers, logs: filepath.Join(c.Run, "logs")}
	if err := os.MkdirAll(c.deployment.logs, 0o700); err != nil {
		return err
	}
	for _, group := range []struct {
		role  string
		count int
	}{{roleRecorder, 1}, {roleJanitor, janitors}, {roleWorker, workers}, {roleProducer, producers}} {
		for i := range group.count {
			if err := c.deployment.add(ctx, group.role, fmt.Sprintf("%s%d", group.role, i+1)); err != nil {
				return err
			}
		}
	}
	c.deployment.recorder = "http://" + c.deployment.of(roleRecorder)[0].ip + recorderAddress + "/"
	for _, s := range c.deployment.slots {
		if err := s.start(); err != nil {
			return err
		}
	}
	c.say("%d workers, %d janitors, %d producers and the recorder have started", workers, janitors, producers)
	return c.deployment.readyAll(ctx, readyLimit)
}

// perform inflicts acts until Options.For has passed.
func (c *campaign) perform(ctx context.Context) error {
	c.began = time.Now()
	plan := NewPlan(c.Seed, c.kinds())
	for time.Since(c.began) < c.For {
		act := plan.Next()
		sleep(ctx, act.Calm)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := c.act(ctx, act); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			c.say("  %v", err)
			c.problems = append(c.problems, err.Error())
		}
		if err := c.deployment.readyAll(ctx, readyLimit); err != nil {
			return fmt.Errorf("after %v: %w", act.Faults, err)
		}
	}
	return nil
}

// kinds returns the kinds of faults of the plan. A soak leaves out Upgrade, StorePromote and StoreFull, which affect
// all processes.
func (c *campaign) kinds() []Kind {
	if len(c.Only) > 0 || !c.Soak {
		return c.Only
	}
	var kinds []Kind
	for _, t := range traits {
		if t.kind != Upgrade && t.kind != StorePromote && t.kind != StoreFull {
			kinds = append(kinds, t.kind)
		}
	}
	return kinds
}

// act inflicts the faults of an act at the same time.
func (c *campaign) act(ctx context.Context, act Act) error {
	var names []string
	for _, f := range act.Faults {
		names = append(names, f.String())
	}
	c.say("%s", strings.Join(names, " + "))
	struck, problems := make([]Struck, len(act.Faults)), make([]error, len(act.Faults))
	var running sync.WaitGroup
	for i, f := range act.Faults {
		running.Go(func() { struck[i], problems[i] = c.inflict(ctx, f) })
	}
	running.Wait()
	for i := range struck {
		struck[i].Alone = len(struck) == 1
	}
	c.struck = append(c.struck, struck...)
	return errors.Join(problems...)
}

// settle ends the load and waits until all tasks are final.
func (c *campaign) settle(ctx context.Context) error {
	for _, s := range c.deployment.of(roleProducer) {
		if err := s.drain(ctx); err != nil {
			return err
		}
	}
	c.say("the load has ended; waiting until all tasks are final")
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	for {
		counts, err := c.backend.Store.Count(ctx, store.Filter{})
		if err == nil && counts.By[holdfast.Ready]+counts.By[holdfast.Running] == 0 {
			return nil
		}
		sleep(ctx, time.Second)
		if ctx.Err() != nil {
			return fmt.Errorf("%d tasks wait and %d run %s after the last fault", counts.By[holdfast.Ready], counts.By[holdfast.Running], settleLimit)
		}
	}
}

// read reads the records of all processes and the states of the tasks.
func (c *campaign) read(ctx context.Context, books *Books) error {
	books.Workers = make(map[string]string)
	for _, s := range c.deployment.of(roleWorker) {
		books.Workers[s.ip] = s.name
	}
	if err := readLines(c.deployment.of(roleRecorder)[0].path(".jsonl"), func(r Record) { books.Records = append(books.Records, r) }); err != nil {
		return err
	}
	for _, s := range c.deployment.of(roleProducer) {
		if err := readLines(s.path(".jsonl"), func(a Accepted) { books.Accepted = append(books.Accepted, a) }); err != nil {
			return err
		}
	}
	var ids []holdfast.TaskID
	for _, batch := range books.Accepted {
		ids = append(ids, batch.IDs...)
	}
	books.States = make(map[holdfast.TaskID]holdfast.State, len(ids))
	for len(ids) > 0 {
		some := ids[:min(1000, len(ids))]
		ids = ids[len(some):]
		tasks, err := c.backend.Store.TasksByID(ctx, some)
		if err != nil {
			return err
		}
		for _, task := range tasks {
			books.States[task.ID] = task.State
		}
	}
	return nil
}
