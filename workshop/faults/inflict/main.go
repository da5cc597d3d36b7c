// Command inflict breaks a deployment on purpose and reports what happened to its tasks, with package faults. `make
// faults` and `make soak` run it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/workshop/faults"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "record":
		err = faults.Recorder(ctx, os.Stdout)
	case len(os.Args) == 5 && os.Args[1] == "produce":
		err = produce(ctx, os.Args[2], os.Args[3], os.Args[4])
	default:
		err = campaign(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "inflict:", err)
		os.Exit(1)
	}
}

// produce runs a producer process.
func produce(ctx context.Context, url, first, rate string) error {
	load := faults.Load{URL: url}
	var problems [2]error
	load.First, problems[0] = strconv.Atoi(first)
	load.Rate, problems[1] = strconv.Atoi(rate)
	if err := errors.Join(problems[:]...); err != nil {
		return err
	}
	cfg, err := configs.Load(configs.Options{Env: os.Environ()})
	if err != nil {
		return err
	}
	log := logrus.New()
	for {
		backend, err := app.Open(ctx, cfg, log)
		if err == nil {
			defer backend.Close()
			return faults.Produce(ctx, backend, load, os.Stdout)
		}
		log.WithError(err).Warn("servers not opened, trying again")
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return nil
		}
	}
}

// campaign runs a campaign with the flags of the command line.
func campaign(ctx context.Context) error {
	var o faults.Options
	flag.StringVar(&o.Root, "root", ".", "root folder of the project")
	flag.Uint64Var(&o.Seed, "seed", 1, "seed of the plan")
	flag.DurationVar(&o.For, "for", 20*time.Minute, "time in which faults begin")
	flag.IntVar(&o.Rate, "rate", 40, "tasks per second")
	flag.BoolVar(&o.Soak, "soak", false, "measure what grows, at processes that no fault hits")
	report := flag.String("report", "", "file for the report")
	from := flag.String("from", "", "commit of the older build; empty means the last commit that changed the schema")
	only := flag.String("only", "", "kinds of faults, separated by |; empty means all")
	keep := flag.Bool("keep", false, "keep the folder with the logs and records")
	flag.Parse()
	if *only != "" {
		for _, name := range strings.Split(*only, "|") {
			kind, err := faults.ParseKind(name)
			if err != nil {
				return err
			}
			o.Only = append(o.Only, kind)
		}
	}
	var err error
	if o.Root, err = filepath.Abs(o.Root); err != nil {
		return err
	}
	if o.Self, err = os.Executable(); err != nil {
		return err
	}
	if o.Run, err = os.MkdirTemp("", "holdfast-faults-"); err != nil {
		return err
	}
	o.Out = os.Stderr
	if *keep {
		fmt.Fprintln(o.Out, "the logs and records are in", o.Run)
	} else {
		defer os.RemoveAll(o.Run)
	}
	if err := build(ctx, &o, *from); err != nil {
		return err
	}
	books, err := faults.Run(ctx, o)
	if err != nil {
		return err
	}
	return conclude(o, books, *report)
}

// conclude judges the records, prints the verdict and writes the report. It returns an error if a promise was broken.
func conclude(o faults.Options, books faults.Books, report string) error {
	v := faults.Judge(books)
	fmt.Println("| counted | |\n|---|---|")
	faults.WriteTable(os.Stdout, v)
	fmt.Println()
	faults.WriteFaults(os.Stdout, v)
	trends := faults.Trends(books.Samples)
	if len(trends) > 0 {
		fmt.Println()
		faults.WriteTrends(os.Stdout, trends)
	}
	for _, lines := range [][]string{v.Lost, v.Unexplained, v.SameAttempt, v.Exceeded, v.Escaped} {
		for _, line := range lines {
			fmt.Println(line)
		}
	}
	if report != "" {
		var text strings.Builder
		faults.WriteReport(&text, o, books, v)
		if err := os.WriteFile(report, []byte(text.String()), 0o644); err != nil {
			return err
		}
	}
	if v.Broken() {
		return fmt.Errorf("%d tasks lost, %d repeated executions unexplained, %d attempts executed twice, %d times more limited executions than allowed, %d executions in a pause",
			len(v.Lost), len(v.Unexplained), len(v.SameAttempt), len(v.Exceeded), len(v.Escaped))
	}
	for _, t := range trends {
		if !t.Flat() {
			return fmt.Errorf("%s has grown from %.1f to %.1f", t.Series, t.Early, t.Late)
		}
	}
	if len(books.Problems) > 0 {
		return fmt.Errorf("%d faults could not be inflicted or repaired as planned: %s", len(books.Problems), books.Problems[0])
	}
	return nil
}

// build compiles both programs: the newer one from the working tree, and the older one from the commit from.
func build(ctx context.Context, o *faults.Options, from string) error {
	git := func(arguments ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", o.Root}, arguments...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	compile := func(folder, name string) (string, error) {
		program := filepath.Join(o.Run, "holdfast-"+name)
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-X main.version="+name, "-o", program, "./cmd/holdfast")
		cmd.Dir, cmd.Env = folder, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w: %s", name, err, out)
		}
		return program, nil
	}
	var err error
	if o.Builds[1], err = compile(o.Root, "new"); err != nil {
		return err
	}
	o.Names[1] = "the working tree"
	if from == "" {
		if from, err = git("log", "-1", "--format=%h", "--", "schema"); err != nil || from == "" {
			return fmt.Errorf("find the commit of the older build: this folder is not a clone of the repository (%w)", err)
		}
	}
	o.Names[0] = "commit " + from
	old := filepath.Join(o.Run, "old")
	if _, err := git("worktree", "add", "--detach", old, from); err != nil {
		return fmt.Errorf("check out %s: %w", from, err)
	}
	defer func() { _, _ = git("worktree", "remove", "--force", old) }() // the caller deletes the folder anyway
	o.Builds[0], err = compile(old, "old")
	return err
}
