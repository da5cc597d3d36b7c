// Command measure measures how soon work goes on after something happened; see package recovery. It is what `make recovery`
// runs.
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
	"github.com/holdfastq/holdfast/internal/recovery"
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
	o := recovery.Defaults()
	flag.StringVar(&o.Program, "program", "bin/holdfast", "the holdfast program")
	flag.StringVar(&o.Only, "only", "", "make only this one: kill, restart, drain, delayed, pick-up, fairness, saturation, flood, last-chance or migration")
	flag.BoolVar(&o.Servers, "servers", o.Servers, "measure on PostgreSQL and RabbitMQ")
	flag.BoolVar(&o.Embedded, "embedded", o.Embedded, "measure on one file")
	flag.IntVar(&o.Trials, "trials", o.Trials, "kills, drains, restarts and migrations")
	flag.IntVar(&o.Rounds, "rounds", o.Rounds, "rounds of fairness, saturation and the flood, and up to three of last chances")
	flag.IntVar(&o.Tasks, "tasks", o.Tasks, "delayed tasks")
	flag.IntVar(&o.Flood, "flood", o.Flood, "malformed messages in each queue")
	flag.IntVar(&o.Finished, "finished", o.Finished, "finished tasks that are stored before the restarts on servers (5 million take 4 GB of disk)")
	report := flag.String("report", "", "file to write the report to; empty prints it only")
	command := flag.String("command", "make recovery", "what the report says to run")
	flag.Parse()
	if flag.NArg() > 0 || min(o.Trials, o.Rounds, o.Tasks, o.Flood, o.Finished+1) < 1 {
		return errors.New("there are no arguments, and numbers are positive; see -help")
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	o.Log = log
	s := recovery.Setting{Command: *command, Began: time.Now()}
	version, err := exec.CommandContext(ctx, o.Program, "--version").Output()
	if err != nil {
		return fmt.Errorf("ask %s for its version: %w; build it with: make build", o.Program, err)
	}
	if words := strings.Fields(string(version)); len(words) > 1 {
		s.Version = words[1]
	}
	if o.Servers {
		o.DatabaseURL, o.AMQPURL = os.Getenv("DATABASE_URL"), os.Getenv("AMQP_URL")
		if o.DatabaseURL == "" || o.AMQPURL == "" {
			return errors.New("DATABASE_URL and AMQP_URL are not set; run: make recovery, or measure one file only with -servers=false")
		}
		if s.PostgreSQL, s.Broker, err = versions(ctx, log); err != nil {
			return err
		}
	}
	var figures []recovery.Figure
	if err := recovery.Run(ctx, o, func(f recovery.Figure) {
		figures = append(figures, f)
		fmt.Fprintf(os.Stderr, "%s: %s, %d trials\n", f.Backend, f.What, len(f.Samples))
	}); err != nil {
		return err
	}
	if len(figures) == 0 {
		return fmt.Errorf("there is no measurement %q", o.Only)
	}
	s.Took = time.Since(s.Began)
	var text strings.Builder
	if err := recovery.WriteReport(&text, s, figures); err != nil {
		return err
	}
	fmt.Print(text.String())
	if *report == "" {
		return nil
	}
	return os.WriteFile(*report, []byte(text.String()), 0o644)
}

var product = regexp.MustCompile(`(PostgreSQL|RabbitMQ) [0-9][0-9.]*`)

// versions asks the servers, as holdfast doctor does.
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
		return "", "", errors.New("the servers do not answer; look with: holdfast doctor")
	}
	return postgres, rabbit, nil
}
