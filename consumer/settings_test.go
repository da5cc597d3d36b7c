package consumer

import (
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// changingSettings has the same settings for every type.
type changingSettings struct {
	now atomic.Pointer[holdfast.TypeSettings]
}

func (c *changingSettings) For(string) *holdfast.TypeSettings { return c.now.Load() }

// A renewal contains the settings of the types with a handler, unless the store already has them.
func TestRenewalsPublishChangedSettings(t *testing.T) {
	t.Parallel()
	var source changingSettings
	set := func(timeout time.Duration) {
		source.now.Store(&holdfast.TypeSettings{Policy: holdfast.DefaultPolicy(), Timeout: timeout, PolicyFor: func(p holdfast.Policy, _ error) holdfast.Policy { return p }})
	}
	set(time.Second)
	var registry Registry
	registry.Add("mail", HandlerFunc(nil))
	s := testSession(t, Options{Handlers: &registry, Settings: &source, Lease: time.Hour}, time.Now())
	sent := func() time.Duration {
		t.Helper()
		text := s.changedSettings()
		if text == nil {
			return 0
		}
		var settings store.WorkerSettings
		if err := json.Unmarshal(text, &settings); err != nil || len(settings) != 1 || !settings["mail"].PolicyFor || settings["mail"].Policy.Base != holdfast.DefaultPolicy().Base {
			t.Fatalf("%s: %+v, %v", text, settings, err)
		}
		s.settings = text
		return settings["mail"].Timeout
	}
	if got := sent(); got != time.Second {
		t.Errorf("the first renewal has the timeout %s", got)
	}
	if got := sent(); got != 0 {
		t.Errorf("a renewal has settings that did not change: %s", got)
	}
	set(time.Minute)
	if got := sent(); got != time.Minute {
		t.Errorf("after a change a renewal has %s", got)
	}
	s.noteHistory("a")
	s.noteHistory("b") // the store may have lost the settings
	if got := sent(); got != time.Minute {
		t.Errorf("after the store may have lost commits, a renewal has %s", got)
	}
}
