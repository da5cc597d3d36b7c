package logs

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
)

// Lines keep their level, message, fields and time. Lines of disabled levels are left out.
func TestSlogTakesLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := Limited(FromSlog(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && time.Since(a.Value.Time()) < time.Hour {
			return slog.Attr{}
		}
		return a
	}}))))
	log.WithField("task", 7).WithError(errors.New("boom")).WithField("took", time.Second).Warn("slow")
	log.Debug("disabled")
	log.Error("bad")
	log.Info("fine")
	Flush(log)
	want := "level=WARN msg=slow error=boom task=7 took=1s\nlevel=ERROR msg=bad\nlevel=INFO msg=fine\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

func TestSlogLevels(t *testing.T) {
	t.Parallel()
	var seen []slog.Level
	log := FromSlog(slog.New(levels{&seen}))
	log.(*logrus.Logger).Trace("trace")
	log.Debug("debug")
	log.Info("info")
	log.Warn("warn")
	log.Error("error")
	if want := []slog.Level{-8, slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}; len(seen) != len(want) {
		t.Errorf("the levels are %v", seen)
	} else {
		for i := range want {
			if seen[i] != want[i] {
				t.Errorf("level %d is %v, want %v", i, seen[i], want[i])
			}
		}
	}
}

// levels is a handler that records the levels of its lines.
type levels struct{ seen *[]slog.Level }

func (l levels) Enabled(context.Context, slog.Level) bool { return true }
func (l levels) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l levels) WithGroup(string) slog.Handler            { return l }
func (l levels) Handle(_ context.Context, r slog.Record) error {
	*l.seen = append(*l.seen, r.Level)
	return nil
}

// A nil logger of any type writes nothing.
func TestNilLoggersWriteNothing(t *testing.T) {
	t.Parallel()
	for name, log := range map[string]logrus.FieldLogger{
		"nil": nil, "nil logger": (*logrus.Logger)(nil), "nil entry": (*logrus.Entry)(nil), "nil slog": FromSlog(nil),
	} {
		limited := Limited(log)
		limited.WithField("a", strings.Repeat("b", 3)).Error(name)
		Flush(limited)
	}
}
