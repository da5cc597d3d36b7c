package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// If the reader of the log goes away, the process continues to run tasks, and SIGTERM still starts a drain.
func TestServeOutlivesTheReaderOfItsLog(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	environment := append(os.Environ(), "DATABASE_URL=sqlite:"+folder+"/tasks.db", "AMQP_URL=", "HOLDFAST_LISTEN=", "HOLDFAST_AMQP_PREFIX=",
		"HOLDFAST_LOG_LEVEL=debug")
	serve := exec.CommandContext(t.Context(), program, "serve")
	serve.Env = environment
	log, err := serve.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	for lines.Scan() && !strings.Contains(lines.Text(), "tasks are kept in this file") {
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 { // each task writes a line
		if err := serve.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, errs := run(environment, []string{"enqueue", "--type", "http", "--payload", `{"url":"https://127.0.0.1:1/"}`, "--set", "webhook.allow_cidrs=127.0.0.0/8"}); code != exitOK {
		t.Fatalf("enqueue: %d %s %s", code, out, errs)
	}
	// The process does not allow the address of the task, so the task dies.
	code, out, errs := run(environment, []string{"task", "wait", "1", "--timeout", slow.Patience().String()})
	if code != exitFailure || !strings.Contains(string(out), "dead") {
		t.Errorf("task wait: %d %s %s", code, out, errs)
	}
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := serve.Wait(); err != nil {
		t.Errorf("serve: %v", err)
	}
}

// If the reader of stdout goes away between two parts of a table, as head does, the command fails without a text.
func TestACommandWhoseReaderGoesAwayIsSilent(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	catchBrokenPipes()
	out := &output{Writer: writer}
	_, first := fmt.Fprintln(out, "first part")
	_, second := fmt.Fprintln(out, "second part")
	if first == nil || second == nil {
		t.Fatalf("writes without a reader return %v and %v", first, second)
	}
	if err := out.result(second); err == nil || err.Error() != "" {
		t.Errorf("the command fails with %v, want an error without a text", err)
	}
	if err := out.result(errors.Join(first, nil, second)); err == nil || err.Error() != "" {
		t.Errorf("a command of two parts fails with %v, want an error without a text", err)
	}
	if err := out.result(errors.Join(second, holdfast.ErrNotFound)); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("the command does not report another error: %v", err)
	}
	if partly := (&failure{code: exitPartly}); out.result(partly) != error(partly) {
		t.Error("the command loses its exit code")
	}
	if made := stored(second, "made a change"); out.result(made) != made {
		t.Error("the command does not say that it has made a change")
	}
}

func TestRealZones(t *testing.T) {
	t.Parallel()
	for name, valid := range map[string]bool{
		"": true, "UTC": true, ":UTC": true, "Europe/Berlin": true, ":America/New_York": true, "EST5EDT": true,
		"Local": false, "Mars/Olympus": false, "../zone": false, "/nowhere": false, "CET-1CEST,M3.5.0,M10.5.0/3": false, "UTC+1": false,
	} {
		if err := checkZone(name); (err == nil) != valid {
			t.Errorf("%q: %v", name, err)
		}
	}
}
