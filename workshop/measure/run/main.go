// Command measure makes the measurements of package measure: how soon tasks run after a kill, a drain or another event.
// `make recovery` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/workshop/measure"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	o := measure.Defaults()
	flag.StringVar(&o.Program, "program", "bin/holdfast", "path of the holdfast program")
	flag.StringVar(&o.Only, "only", "", "`name` of the only measurement to make: kill, restart, drain, delayed, pick-up, fairness, priorities, saturation, flood, last-chance or migration")
	flag.BoolVar(&o.Servers, "servers", o.Servers, "measure on PostgreSQL and RabbitMQ")
	flag.BoolVar(&o.Embedded, "embedded", o.Embedded, "measure on one file")
	flag.IntVar(&o.Trials, "trials", o.Trials, "number of kills, drains, restarts and migrations")
	flag.IntVar(&o.Rounds, "rounds", o.Rounds, "number of rounds of fairness, saturation and the flood; at most three rounds of last-chance")
	flag.IntVar(&o.Tasks, "tasks", o.Tasks, "number of delayed tasks")
	flag.IntVar(&o.Flood, "flood", o.Flood, "number of malformed messages for each AMQP queue")
	flag.IntVar(&o.Backlog, "backlog", o.Backlog, "number of low tasks that wait while high tasks are stored")
	flag.IntVar(&o.Finished, "finished", o.Finished, "number of finished tasks to store before the restarts on servers (5 million need 4 GB of disk)")
	report := flag.String("report", "", "`file` for the report; if empty, the report is only printed")
	command := flag.String("command", "make recovery", "the command that the report names")
	flag.Parse()
	if flag.NArg() > 0 || min(o.Trials, o.Rounds, o.Tasks, o.Flood, o.Backlog, o.Finished+1) < 1 {
		return errors.New("invalid arguments: only flags are allowed, and numbers must be positive; see -help")
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	o.Log = log
	c := measure.Conditions{Command: *command, Began: time.Now()}
	version, err := exec.CommandContext(ctx, o.Program, "--version").Output()
	if err != nil {
		return fmt.Errorf("version of %s: %w; build it with: make build", o.Program, err)
	}
	if words := strings.Fields(string(version)); len(words) > 1 {
		c.Version = words[1]
	}
	if o.Servers {
		o.DatabaseURL, o.AMQPURL = os.Getenv("DATABASE_URL"), os.Getenv("AMQP_URL")
		if o.DatabaseURL == "" || o.AMQPURL == "" {
			return errors.New("DATABASE_URL and AMQP_URL are not set; run make recovery, or measure only a file with -servers=false")
		}
		if c.PostgreSQL, c.Broker, err = versions(ctx, log); err != nil {
			return err
		}
	}
	var figures []measure.Figure
	if err := measure.Run(ctx, o, func(f measure.Figure) {
		figures = append(figures, f)
		fmt.Fprintf(os.Stderr, "%s: %s, %d trials\n", f.Backend, f.What, len(f.Samples))
	}); err != nil {
		return err
	}
	if len(figures) == 0 {
		return fmt.Errorf("no measurement is named %q", o.Only)
	}
	c.Took = time.Since(c.Began)
	var text strings.Builder
	if err := measure.WriteReport(&text, c, figures); err != nil {
		return err
	}
	fmt.Print(text.String())
	if *report == "" {
		return nil
	}
	return os.WriteFile(*report, []byte(text.String()), 0o644)
}

var product = regexp.MustCompile(`(PostgreSQL|RabbitMQ) [0-9][0-9.]*`)

// versions returns the names and versions of the servers, as holdfast doctor reports them.
func versions(ctx context.Context, log logrus.FieldLogger) (postgres, rabbit string, err error) {
	cfg, err := configs.Load(configs.Options{Env: []string{"DATABASE_URL=" + os.Getenv("DATABASE_URL"), "AMQP_URL=" + os.Getenv("AMQP_URL")}})
	if err != nil {
		return "", "", err
	}
	for _, check := range app.Examine(ctx, cfg, log).Checks {
		switch found := product.FindString(check.Detail); {
		case strings.HasPrefix(found, "PostgreSQL"):
			postgres = found
		case found != "":
			rabbit = found
		}
	}
	if postgres == "" || rabbit == "" {
		return "", "", errors.New("the servers do not answer; see: holdfast doctor")
	}
	return postgres, rabbit, nil
}
