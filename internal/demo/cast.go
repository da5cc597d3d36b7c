package demo

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast/configs"
)

// cast is who takes part in the tour: the processes, and which of them is killed.
type cast struct {
	parts      []part
	victim     part
	revived    bool   // the victim is started again at once
	opening    string // what is said when all have started
	afterwards string // and after the kill
}

// part is one process.
type part struct{ name, roles string }

// cast follows the backend: one process serves a file, servers are shared by several.
func (o Options) cast() cast {
	if path, embedded := o.Backend.Embedded(); embedded {
		serve := part{"holdfast serve", strings.Join([]string{configs.RoleWorker, configs.RoleJanitor}, ",")}
		return cast{
			parts: []part{serve}, victim: serve, revived: true,
			opening:    "Started holdfast serve, one process with everything in it, on " + path + ".",
			afterwards: " It is started again at once.",
		}
	}
	worker := part{"worker-1", configs.RoleWorker}
	return cast{
		parts: []part{{"janitor", configs.RoleJanitor}, worker, {"worker-2", configs.RoleWorker}}, victim: worker,
		opening: "Started two workers and a janitor, as processes of their own.",
	}
}

// TargetNetwork is where the tour's target listens. The configuration of the tour's backend must permit requests to it.
var TargetNetwork = netip.MustParsePrefix("127.0.0.0/8")

// command is the command line of one part, with the tour's backend and settings.
func (o Options) command(p part, listen string) (arguments, environment []string) {
	arguments = []string{"serve", "--roles", p.roles, "--name", p.name, "--listen", listen}
	c := o.Backend.Config
	foreign := func(variable string) bool { // what is set for another purpose
		return strings.HasPrefix(variable, "HOLDFAST_") || strings.HasPrefix(variable, "DATABASE_URL=") || strings.HasPrefix(variable, "AMQP_URL=")
	}
	environment = append(slices.DeleteFunc(os.Environ(), foreign),
		"HOLDFAST_DATABASE_URL="+c.Database.URL, "HOLDFAST_DATABASE_DIRECT_URL="+c.Database.DirectURL, "HOLDFAST_DATABASE_SCHEMA="+c.Database.Schema,
		"HOLDFAST_AMQP_URLS="+strings.Join(c.AMQP.URLs, ","), "HOLDFAST_AMQP_PREFIX="+c.AMQP.Prefix,
		"HOLDFAST_WEBHOOK_ALLOW_CIDRS="+TargetNetwork.String(),
		"HOLDFAST_TYPES_HTTP_RETRY_STRATEGY=exponential",
		"HOLDFAST_TYPES_HTTP_RETRY_BASE=500ms",
		"HOLDFAST_TYPES_HTTP_RETRY_FACTOR=2",
		"HOLDFAST_WORKER_LANES="+lane,
	)
	return arguments, environment
}

// next says what to try, and with Keep leaves a process serving for it.
func (o Options) next(ctx context.Context) error {
	program, first := "bin/holdfast", ""
	switch path, embedded := o.Backend.Embedded(); {
	case !embedded:
		o.say("\nWhat never could be delivered is dead and waits for you. With the servers of the tour running")
		o.say("(make servers-up; . .servers/env), look at it:\n")
	case !o.Keep:
		o.say("\nNothing is left behind. To look at what never could be delivered, and send it again:\n")
		o.say("  %s demo --keep", o.Binary)
		return nil
	default:
		pid, log, err := o.leave(ctx)
		if err != nil {
			return err
		}
		program, first = o.Binary, "export DATABASE_URL=sqlite:"+path
		o.say("\nWhat never could be delivered is dead and waits for you. holdfast serve goes on as process %d,", pid)
		o.say("its log is %s. Look around, from any terminal:\n", log)
		defer o.say("\nWhen you have seen enough: kill %d; rm -r %s", pid, filepath.Dir(path))
	}
	if first != "" {
		o.say("  %s", first)
	}
	for _, line := range [][2]string{
		{"dead list --lane " + lane, ""},
		{"task get <ID>", "one of them, with its attempts"},
		{"task attempts <ID>", "what the target answered each time"},
		{"dead retry <ID>", "send it again; the target of the tour is gone by now"},
		{"queue list", "what waits and runs"},
		{"--help", ""},
	} {
		if line[1] != "" {
			line[1] = "# " + line[1]
		}
		o.say("  %s", strings.TrimRight(fmt.Sprintf("%s %-18s %s", program, line[0], line[1]), " "))
	}
	return nil
}

// leave starts a process that goes on when this one ends. When it serves, leave returns its id and its log.
func (o Options) leave(ctx context.Context) (pid int, log string, err error) {
	log = filepath.Join(o.Logs, "serve.log")
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, "", err
	}
	defer file.Close()
	arguments, environment := o.command(o.cast().victim, "127.0.0.1:0")
	cmd := exec.Command(o.Binary, arguments...)
	cmd.Env, cmd.Stderr, cmd.SysProcAttr = environment, file, detached()
	if err := cmd.Start(); err != nil {
		return 0, "", err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(ended)
	}()
	if err := serving(ctx, log, ended); err != nil {
		_ = cmd.Process.Kill() // the only error is that it has ended
		return 0, "", err
	}
	return cmd.Process.Pid, log, nil
}

// serving waits until the process with this log says that it does its work. Until then another process could take the
// file.
func serving(ctx context.Context, log string, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		lines, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		if found := servedAt.FindSubmatch(lines); found != nil {
			if err := pollReady(ctx, "http://"+string(found[1])+"/healthz/ready"); err != nil {
				return fmt.Errorf("holdfast serve did not become ready; its log is %s: %w", log, err)
			}
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("holdfast serve ended at once; its log is %s", log)
		case <-ctx.Done():
			return fmt.Errorf("holdfast serve did not start; its log is %s: %w", log, ctx.Err())
		case <-tick.C:
		}
	}
}
