package demo

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfastq/holdfast/configs"
)

// scenario defines the processes of the demo and which of them is killed.
type scenario struct {
	processes   []spec
	victim      spec
	restart     bool   // start the victim again right after the kill
	startedText string // printed after all processes have started
	killedText  string // appended to the line about the kill
}

type spec struct{ name, roles string }

// scenario returns the scenario for the backend: one process for a file, a janitor and two workers for servers.
func (o Options) scenario() scenario {
	if path, embedded := o.Backend.Embedded(); embedded {
		serve := spec{"holdfast serve", strings.Join([]string{configs.RoleWorker, configs.RoleJanitor}, ",")}
		return scenario{
			processes: []spec{serve}, victim: serve, restart: true,
			startedText: "Started holdfast serve, one process with all roles, on " + path + ".",
			killedText:  " Starting it again now.",
		}
	}
	worker := spec{"worker-1", configs.RoleWorker}
	return scenario{
		processes: []spec{{"janitor", configs.RoleJanitor}, worker, {"worker-2", configs.RoleWorker}}, victim: worker,
		startedText: "Started two workers and a janitor, each as a process.",
	}
}

// TargetNetwork is the network in which the target of the demo listens. The configuration of Options.Backend must
// permit requests to it.
var TargetNetwork = netip.MustParsePrefix("127.0.0.0/8")

// command returns the command line and the environment of a process. Both use the backend and the settings of the demo.
func (o Options) command(s spec, listen string) (arguments, environment []string) {
	arguments = []string{"serve", "--roles", s.roles, "--name", s.name, "--listen", listen}
	c := o.Backend.Config
	foreign := func(variable string) bool { // reports whether the variable could change the settings of the demo
		return strings.HasPrefix(variable, "HOLDFAST_") || strings.HasPrefix(variable, "DATABASE_URL=") || strings.HasPrefix(variable, "AMQP_URL=")
	}
	environment = append(slices.DeleteFunc(os.Environ(), foreign),
		"HOLDFAST_DATABASE_URL="+c.Database.URL, "HOLDFAST_DATABASE_DIRECT_URL="+c.Database.DirectURL, "HOLDFAST_DATABASE_SCHEMA="+c.Database.Schema,
		"HOLDFAST_AMQP_URLS="+strings.Join(c.AMQP.URLs, ","), "HOLDFAST_AMQP_PREFIX="+c.AMQP.Prefix,
		"HOLDFAST_WEBHOOK_ALLOW_CIDRS="+TargetNetwork.String(),
		"HOLDFAST_WEBHOOK_BREAKER_FAULTS=0", // the target fails for single tasks
		"HOLDFAST_TYPES_HTTP_RETRY_STRATEGY=exponential",
		"HOLDFAST_TYPES_HTTP_RETRY_BASE=500ms",
		"HOLDFAST_TYPES_HTTP_RETRY_FACTOR=2",
		"HOLDFAST_WORKER_QUEUES="+queue,
	)
	return arguments, environment
}

// printNext prints the commands to try next. With Options.Keep it first starts a process that keeps serving the file.
func (o Options) printNext(ctx context.Context) error {
	program, first := "bin/holdfast", ""
	switch path, embedded := o.Backend.Embedded(); {
	case !embedded:
		o.say("\nMessages that could not be delivered are dead until you retry them. To see them, keep the servers")
		o.say("of the demo running (make servers-up; . .servers/env) and use these commands:\n")
	case !o.Prune:
		o.say("\nThe demo deletes its files. To keep them, and to see and retry the dead messages, run:\n")
		o.say("  %s demo --keep", o.Binary)
		return nil
	default:
		pid, log, err := o.startDetached(ctx)
		if err != nil {
			return err
		}
		program, first = o.Binary, "export DATABASE_URL=sqlite:"+path
		o.say("\nMessages that could not be delivered are dead until you retry them. holdfast serve keeps running as")
		o.say("process %d. Its log is %s. Use these commands in any terminal:\n", pid, log)
		defer o.say("\nTo end the demo: kill %d; rm -r %s", pid, filepath.Dir(path))
	}
	if first != "" {
		o.say("  %s", first)
	}
	for _, line := range [][2]string{
		{"dead list --queue " + queue, ""},
		{"task get <ID>", "one of them, with its attempts"},
		{"task attempts <ID>", "the response of the target to each attempt"},
		{"dead retry <ID>", "send it again; the target of the demo no longer runs"},
		{"queue list", "the number of waiting and running tasks"},
		{"--help", ""},
	} {
		if line[1] != "" {
			line[1] = "# " + line[1]
		}
		o.say("  %s", strings.TrimRight(fmt.Sprintf("%s %-18s %s", program, line[0], line[1]), " "))
	}
	return nil
}

// startDetached starts a process that outlives this one. It waits until the process is ready, and returns its PID and
// the path of its log.
func (o Options) startDetached(ctx context.Context) (pid int, log string, err error) {
	serve, err := (&processes{o: o}).start(ctx, o.scenario().victim, true)
	if err != nil {
		return 0, "", err
	}
	if err := serve.ready(ctx); err != nil {
		_ = serve.cmd.Process.Kill() // fails only if the process has ended
		return 0, "", err
	}
	return serve.cmd.Process.Pid, serve.log, nil
}
