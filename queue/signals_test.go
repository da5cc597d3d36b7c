//go:build unix

package queue_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
)

// childEnv is an environment variable. If it is set, this test binary runs as the program of TestSignals. Its value is
// the path of the database file.
const childEnv = "HOLDFAST_TEST_QUEUE_FILE"

// The first signal starts a drain, in which the handler may finish. The second signal cancels the handler, and Run
// hands its task back. In both cases Run returns nil.
func TestSignals(t *testing.T) {
	if path := os.Getenv(childEnv); path != "" {
		program(path)
		return
	}
	t.Parallel()
	for name, c := range map[string]struct {
		signals []os.Signal
		want    holdfast.State
	}{
		"a drain":         {[]os.Signal{syscall.SIGTERM}, holdfast.Done},
		"a second signal": {[]os.Signal{os.Interrupt, syscall.SIGTERM}, holdfast.Ready},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := onFile(t)
			path, _ := strings.CutPrefix(w.environment[0], "DATABASE_URL=sqlite:")
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSignals$")
			cmd.Env = append(os.Environ(), childEnv+"="+path)
			out, err := cmd.StdoutPipe()
			w.must(err)
			in, err := cmd.StdinPipe()
			w.must(err)
			w.must(cmd.Start())
			var lines []string
			for scan := bufio.NewScanner(out); scan.Scan(); {
				lines = append(lines, scan.Text())
				switch { // "started", then "draining" after the first signal
				case scan.Text() == "started":
					w.must(cmd.Process.Signal(c.signals[0]))
				case scan.Text() == "draining" && len(c.signals) > 1:
					w.must(cmd.Process.Signal(c.signals[1]))
				case scan.Text() == "draining":
					_, _ = fmt.Fprintln(in, "finish")
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("the program: %v\n%s", err, strings.Join(lines, "\n"))
			}
			task, err := w.open().Task(t.Context(), 1)
			if err != nil || task.State != c.want || task.Failures != 0 {
				t.Errorf("the task is %+v, %v", task, err)
			}
		})
	}
}

// program runs one task until standard input has a line or the task is cancelled. Its drain timeout is so long that
// only a second signal ends the drain.
func program(path string) {
	q, err := queue.Open(context.Background(), queue.File(path), queue.Set("worker.drain_timeout", "10m"), queue.Logger(drainLogger()))
	if err != nil {
		panic(err)
	}
	err = queue.Handle(q, "x", func(ctx context.Context, _ holdfast.Task, _ any) error {
		fmt.Println("started")
		finish := make(chan struct{})
		go func() {
			_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
			close(finish)
		}()
		select {
		case <-finish:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if err == nil {
		_, err = q.Enqueue(context.Background(), "x", nil)
	}
	if err = errors.Join(err, q.Run(context.Background()), q.Close()); err != nil {
		panic(err)
	}
}

// drainLogger returns a logger that writes "draining" to standard output when Run has received a signal.
func drainLogger() logrus.FieldLogger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	log.AddHook(drainHook{})
	return log
}

type drainHook struct{}

func (drainHook) Levels() []logrus.Level { return logrus.AllLevels }

func (drainHook) Fire(entry *logrus.Entry) error {
	if strings.HasPrefix(entry.Message, "draining: signal received") {
		fmt.Println("draining")
	}
	return nil
}
