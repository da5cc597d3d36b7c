package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// A batch whose file changes between the check and the end of the command is not sealed.
func TestABatchOfAFileThatChanges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ after, want string }{
		"shorter":  {"1\n", "batch 1: the file has changed while the command was running"},
		"longer":   {"1\n2\n3\n4\n", "batch 1: the file has changed while the command was running"},
		"bad line": {"1\nbad\n3\n", "batch 1: line 2 has changed while the command was running: the line is not valid JSON: bad"},
		"the same": {"1\n2\n3\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			cfg, err := configs.Load(configs.Options{Env: newFile(t)})
			if err != nil {
				t.Fatal(err)
			}
			silent := logrus.New()
			silent.SetOutput(io.Discard)
			b, err := openNewStore(ctx, cfg, silent)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			path := filepath.Join(t.TempDir(), "lines.jsonl")
			if err := os.WriteFile(path, []byte("1\n2\n3\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			one := &tool{terminal: terminal{stderr: &bytes.Buffer{}}}
			lines := &batchLines{t: batchCommands{one}, b: b, task: holdfast.NewTask{Type: "mail"}}
			file, done, err := one.spooled(ctx, path)
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			lines.file = file
			by := store.Actor{Name: "ada", Surface: store.CommandLine}
			_, started, _, err := surface.StartBatch(ctx, b, by, surface.NewBatch{Open: true})
			if err := errors.Join(err, lines.check(ctx), os.WriteFile(path, []byte(c.after), 0o600)); err != nil {
				t.Fatal(err)
			}
			form, err := lines.store(ctx, by, started.ID)
			if c.want == "" {
				if err != nil || !form.Sealed || form.Total != 3 {
					t.Errorf("an unchanged file: %+v, %v", form, err)
				}
				return
			}
			if err = unsealed(ctx, started.ID, err); err.Error() != c.want {
				t.Errorf("%v, want %s", err, c.want)
			}
			if form, _, err := surface.GetBatch(ctx, b, started.ID); err != nil || form.Sealed || !strings.HasPrefix(nextCommand(form), "the batch waits for more subtasks, and stops after 24h without any") {
				t.Errorf("the batch is %+v, %v", form, err)
			}
		})
	}
}

func TestAnInterruptedBatchNamesTheCommandThatEndsIt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var f *failure
	if err := unsealed(ctx, 7, ctx.Err()); !errors.As(err, &f) || f.code != exitInterrupted || !strings.HasSuffix(f.hint, "to end it: holdfast batch cancel 7") {
		t.Errorf("%+v", f)
	}
}

func TestProgressOfABatch(t *testing.T) {
	t.Parallel()
	b := surface.Batch{
		ID: 7, State: store.PlanRunning, Stage: 1, Stages: make([]surface.BatchStage, 2), Sealed: true, Rate: 12.5, LeftSeconds: new(40.2),
		StageCounts: surface.BatchCounts{Total: 1000, Open: 500, Done: 497, Dead: 3},
	}
	if got, want := progressOf(b), "batch 7: running, stage 1 of 2, 497 of 1000 done, 3 failed, 12.5 per second, 41s left"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := shortProgress(b), "stage 1/2, 3 failed, 12/s, 41s left"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := batchBar(b.StageCounts), "[###############---------------] 50 % of the stage"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	b.Sealed, b.BatchCounts = false, b.StageCounts
	if got := totalOf(b); got != "1000+" {
		t.Error(got)
	}
	var out bytes.Buffer
	write, flush := csvResults(&out)
	err := errors.Join(write(surface.BatchResult{ID: 1, State: holdfast.Done, Payload: []byte(`"a,b"`), Output: []byte(`{"n":1}`)}), flush())
	if want := "id,state,payload,output,error\n1,done,\"a,b\",\"{\"\"n\"\":1}\",\n"; err != nil || out.String() != want {
		t.Errorf("%v, %q, want %q", err, out.String(), want)
	}
}

// CSV keeps the control characters of stored texts in quotes. On a terminal they cannot move the cursor.
func TestCSVWithControlCharacters(t *testing.T) {
	t.Parallel()
	hostile := surface.BatchResult{ID: 1, State: holdfast.Dead, Payload: []byte(`"a\r1,done\u001b[2J"`), Output: []byte("{\"n\":\"\u009b\"}"), Error: "x\r\ny\x1b]0;z\a"}
	const head = "id,state,payload,output,error\n"
	var file bytes.Buffer
	terminal := &frame{terminal: true}
	for name, c := range map[string]struct {
		to   io.Writer
		text func() string
		want string
	}{
		"file":     {&file, file.String, "1,dead,\"a\r1,done\x1b[2J\",\"{\"\"n\"\":\"\"\u009b\"\"}\",\"x\r\ny\x1b]0;z\a\"\n"},
		"terminal": {terminal, terminal.String, "1,dead,\"a 1,done\\u001b[2J\",\"{\"\"n\"\":\"\"\\u009b\"\"}\",\"x \ny\\u001b]0;z\\u0007\"\n"},
	} {
		write, flush := csvResults(c.to)
		if err := errors.Join(write(hostile), flush()); err != nil || c.text() != head+c.want {
			t.Errorf("%s: %v, %q, want %q", name, err, c.text(), head+c.want)
		}
	}
}
