// Package exampletest runs the programs of the folder examples as processes, on servers and on a file. Only their tests
// use it.
package exampletest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/rig"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// Run builds the program in the folder of the test. It runs the program with the arguments on servers, with a schema
// and a prefix of its own (a slow test), and on a file. The program must end without an error. check gets what it has printed, and
// the folder in which it has run.
func Run(t *testing.T, check func(t *testing.T, printed, folder string), args ...string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	for name, environment := range map[string]func(*testing.T) []string{"servers": servers, "file": file} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			check(t, run(t, folder, environment(t), program, args...), folder)
		})
	}
}

// run runs a program in a folder until it ends, and returns what it has printed.
func run(t *testing.T, folder string, environment []string, program string, args ...string) string {
	t.Helper()
	rig.Deploy(t)
	ctx, cancel := context.WithTimeout(t.Context(), slow.Patience())
	defer cancel()
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, program, args...)
	command.Env, command.Dir, command.Stdout, command.Stderr = environment, folder, &stdout, &stderr
	command.WaitDelay = 10 * time.Second // a child of a program that was killed may keep the pipes open
	if err := command.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, stdout.String(), stderr.String())
	}
	t.Log(stdout.String() + stderr.String())
	return stdout.String()
}

// file returns the environment of a program that has no settings.
func file(t *testing.T) []string {
	return []string{"TMPDIR=" + t.TempDir(), "HOME=" + t.TempDir(), lease()}
}

// servers returns the environment of a program on servers. What the program has created is deleted when the test ends.
func servers(t *testing.T) []string {
	t.Helper()
	slow.Skip(t) // the same code runs on a file
	amqp := os.Getenv("AMQP_URL")
	if amqp == "" {
		t.Skip("AMQP_URL is not set; run: make test")
	}
	schema := pgtest.Name(t)
	environment := []string{
		"DATABASE_URL=" + pgtest.URL(t), "AMQP_URL=" + amqp,
		"HOLDFAST_DATABASE_SCHEMA=" + schema, "HOLDFAST_AMQP_PREFIX=test." + schema, "TMPDIR=" + t.TempDir(), lease(),
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slow.Patience())
		defer cancel()
		cfg, err := configs.Load(configs.Options{Env: environment})
		if err != nil {
			t.Error(err)
			return
		}
		b, err := app.Attach(ctx, cfg, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer b.Close()
		if err := b.Ping(ctx, slow.Patience()); err != nil {
			t.Error(err)
			return
		}
		queues, err := b.Store.QueueNames(ctx)
		if err == nil {
			err = b.Topology.Delete(ctx, b.Broker, queues)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return environment
}

// lease returns the lease of a worker, so that a slow machine keeps it.
func lease() string {
	return "HOLDFAST_WORKER_LEASE=" + slow.Times(15*time.Second).Round(time.Second).String()
}
