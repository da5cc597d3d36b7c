package settings_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/settings"
	"github.com/holdfastq/holdfast/store"
)

// memory is a store of settings.
type memory struct {
	mu     sync.Mutex
	stored store.StoredSettings
	fault  error
	hangs  bool // calls return when their context ends
	reads  int  // number of reads of the values
}

func (m *memory) StoredSettings(ctx context.Context, known int64) (store.StoredSettings, error) {
	m.mu.Lock()
	if m.hangs {
		m.mu.Unlock()
		<-ctx.Done()
		return store.StoredSettings{}, ctx.Err()
	}
	defer m.mu.Unlock()
	if m.fault != nil || m.stored.Version == known {
		return store.StoredSettings{Version: m.stored.Version}, m.fault
	}
	m.reads++
	return m.stored, nil
}

func (m *memory) change(f func(*memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
}

func (m *memory) set(version int64, pairs ...string) {
	values := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	m.change(func(m *memory) { m.stored = store.StoredSettings{Version: version, Values: values} })
}

func TestAChangeIsSeenWithinASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		source := settings.New(m, nil)
		view := source.Over(configs.Default())
		base := func(want time.Duration) {
			t.Helper()
			if got := view.For("mail").Policy.Base; got != want {
				t.Errorf("the base is %s, want %s", got, want)
			}
		}
		base(10 * time.Second) // before the first read
		m.set(1, "defaults.retry.base", "1s")
		if err := source.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		base(time.Second)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- source.Run(ctx) }()

		m.set(2, "defaults.retry.base", "1s", "types.mail.retry.base", "2s")
		time.Sleep(1001 * time.Millisecond)
		base(2 * time.Second)
		m.set(3)
		time.Sleep(time.Second)
		base(10 * time.Second)
		m.set(1, "defaults.retry.base", "3s") // the store has lost commits
		time.Sleep(time.Second)
		base(3 * time.Second)
		m.change(func(m *memory) { m.fault = holdfast.ErrUnavailable })
		time.Sleep(time.Hour)
		base(3 * time.Second)
		m.change(func(m *memory) { m.fault, m.hangs = nil, true })
		time.Sleep(1500 * time.Millisecond) // a call hangs
		m.change(func(m *memory) { m.hangs = false })
		m.set(4, "defaults.retry.base", "4s")
		time.Sleep(3 * time.Second)
		base(4 * time.Second)
		before := m.reads
		time.Sleep(time.Hour)
		if m.reads != before {
			t.Errorf("the values were read %d times without a change", m.reads-before)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Settings from a newer build are reported once, and cause no error.
func TestIgnoredSettingsAreReportedOnce(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	log := logrus.New()
	log.SetOutput(&text)
	m := &memory{}
	source := settings.New(m, log)
	views := []holdfast.SettingsSource{source.Over(configs.Default()), source.Over(configs.Default())}
	for version := range 5 {
		m.set(int64(version+1), "defaults.spread", "1", "defaults.timeout", fmt.Sprintf("%ds", version+1))
		if err := source.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, view := range views {
			if got := view.For("mail").Timeout; got != time.Duration(version+1)*time.Second {
				t.Errorf("the timeout is %s", got)
			}
		}
	}
	if n := strings.Count(text.String(), "stored setting ignored"); n != 1 {
		t.Errorf("%d warnings, want 1:\n%s", n, text.String())
	}
	if !strings.Contains(text.String(), "settings changed in the store") || !strings.Contains(text.String(), "defaults.timeout") {
		t.Errorf("the log does not have the change:\n%s", text.String())
	}
}

// TestManyReadersWhileSettingsChange is for the race detector. Each reader sees only stored values, in the order in
// which they were stored.
func TestManyReadersWhileSettingsChange(t *testing.T) {
	t.Parallel()
	m := &memory{}
	source := settings.New(m, nil)
	view := source.Over(configs.Default())
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for last := 0; ctx.Err() == nil; {
				if got := view.For("mail").Policy.MaxCrashes; got < last {
					t.Errorf("%d after %d", got, last)
				} else {
					last = got
				}
			}
		})
	}
	for version := range 1_000 {
		m.set(int64(version+1), "types.mail.max_crashes", fmt.Sprint(version+6))
		if err := source.Refresh(ctx); err != nil {
			t.Error(err)
		}
	}
	stop()
	readers.Wait()
	if got := view.For("mail").Policy.MaxCrashes; got != 1_005 {
		t.Errorf("at the end: %d", got)
	}
}
