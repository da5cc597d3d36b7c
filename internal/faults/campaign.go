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

// Options configures a campaign. Root, Run, Builds, Self and Out are required.
type Options struct {
	Root   string        // of the project
	Run    string        // an empty folder for servers, programs and logs
	Builds [2]string     // two holdfast programs, an older one and a newer one
	Names  [2]string     // what they are, for the report
	Self   string        // the program that is this package: run with produce or record it is one of the processes
	Seed   uint64        // of the plan
	For    time.Duration // how long acts are begun
	Only   []Kind        // empty means all kinds
	Rate   int           // tasks a second, in all
	// Soak spares one worker and one janitor, keeps finished tasks for a minute only, and measures all the while.
	Soak bool
	Out  io.Writer // what happens, for a person
}

const (
	lane       = holdfast.DefaultLane
	workers    = 3
	janitors   = 2
	producers  = 2
	readyLimit = 90 * time.Second
	// settleLimit is for everything that is left when the last fault is mended, the longest task included.
	settleLimit = 5 * time.Minute
)

type campaign struct {
	Options
	servers *servers
	crew    *crew
	backend *app.Backend
	began   time.Time
	struck  []Struck
	// problems are faults that could not be inflicted or mended as they should.
	problems []string
}

// Run inflicts the plan on a deployment of its own and returns what the books say. The error says that it could not
// be carried out; what it found is in the books.
func Run(ctx context.Context, o Options) (books Books, err error) {
	c := &campaign{Options: o, servers: &servers{root: o.Root, run: o.Run}}
	defer func() {
		if c.crew != nil {
			c.crew.stop()
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
	sampling, stop := context.WithCancel(ctx)
	defer stop()
	sampled := make(chan []Sample, 1)
	if o.Soak {
		go func() { sampled <- c.sample(sampling) }()
	} else {
		sampled <- nil
	}
	err = c.perform(ctx)
	stop()
	books.Samples, books.Pruned = <-sampled, o.Soak
	if err != nil {
		return books, err
	}
	books.Struck, books.Problems, books.Took = c.struck, c.problems, time.Since(books.Began)
	if err := c.settle(ctx); err != nil {
		c.say("%v", err) // the judge says which tasks that are
	}
	return books, c.read(ctx, &books)
}

func (c *campaign) say(format string, arguments ...any) {
	at := ""
	if !c.began.IsZero() {
		at = fmt.Sprintf("%6.1f s  ", time.Since(c.began).Seconds())
	}
	fmt.Fprintf(c.Out, at+format+"\n", arguments...)
}

// assemble starts the servers and everybody else.
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
		environment = append(environment, "HOLDFAST_JANITOR_KEEP_DONE=1m", "HOLDFAST_JANITOR_KEEP_RUNS=1m")
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
	return c.hire(ctx, environment)
}

// hire gives everybody an end of the network and starts them.
func (c *campaign) hire(ctx context.Context, environment []string) error {
	c.crew = &crew{servers: c.servers, builds: c.Builds, self: c.Self, environment: environment, rate: c.Rate / producers, logs: filepath.Join(c.Run, "logs")}
	if err := os.MkdirAll(c.crew.logs, 0o700); err != nil {
		return err
	}
	for _, group := range []struct {
		role  string
		count int
	}{{roleRecorder, 1}, {roleJanitor, janitors}, {roleWorker, workers}, {roleProducer, producers}} {
		for i := range group.count {
			if err := c.crew.add(ctx, group.role, fmt.Sprintf("%s%d", group.role, i+1)); err != nil {
				return err
			}
		}
	}
	c.crew.recorder = "http://" + c.crew.of(roleRecorder)[0].ip + recorderAddress + "/"
	for _, s := range c.crew.seats {
		if err := s.start(); err != nil {
			return err
		}
	}
	c.say("%d workers, %d janitors, %d producers and the recorder have started", workers, janitors, producers)
	return c.crew.readyAll(ctx, readyLimit)
}

// perform inflicts acts until the time is over.
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
		if err := c.crew.readyAll(ctx, readyLimit); err != nil {
			return fmt.Errorf("after %v: %w", act.Faults, err)
		}
	}
	return nil
}

// kinds are those of the plan. A soak does without those that all processes feel as their own end.
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

// act inflicts the faults of an act side by side.
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

// settle ends the load and waits until every task is over.
func (c *campaign) settle(ctx context.Context) error {
	for _, s := range c.crew.of(roleProducer) {
		if err := s.drain(ctx); err != nil {
			return err
		}
	}
	c.say("no more tasks; waiting until all are done")
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	for {
		counts, err := c.backend.Store.Count(ctx, store.Filter{})
		if err == nil && counts[holdfast.Ready]+counts[holdfast.Running] == 0 {
			return nil
		}
		sleep(ctx, time.Second)
		if ctx.Err() != nil {
			return fmt.Errorf("%d tasks still wait and %d run %s after the last fault", counts[holdfast.Ready], counts[holdfast.Running], settleLimit)
		}
	}
}

// read takes in what everybody wrote down.
func (c *campaign) read(ctx context.Context, books *Books) error {
	books.Workers = make(map[string]string)
	for _, s := range c.crew.of(roleWorker) {
		books.Workers[s.ip] = s.name
	}
	if err := each(c.crew.of(roleRecorder)[0].path(".jsonl"), func(r Record) { books.Records = append(books.Records, r) }); err != nil {
		return err
	}
	for _, s := range c.crew.of(roleProducer) {
		if err := each(s.path(".jsonl"), func(a Accepted) { books.Accepted = append(books.Accepted, a) }); err != nil {
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
