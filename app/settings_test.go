package app_test

import (
	"errors"
	"io"
	"maps"
	"path/filepath"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/store"
)

// A newer build, or a process with another file, may have stored settings that this build ignores. A person can remove
// them and change other settings. Settings that conflict with this process are refused.
func TestChangesBesideSettingsWithoutEffect(t *testing.T) {
	t.Parallel()
	cfg, err := configs.Load(configs.Options{Env: []string{
		"DATABASE_URL=sqlite:" + filepath.Join(t.TempDir(), "tasks.db"), "HOLDFAST_NOTIFY_URL=https://example.com/", "HOLDFAST_NOTIFY_QUEUE=calls",
	}})
	if err != nil {
		t.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	b, err := app.Open(t.Context(), cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	anna := store.Actor{Name: "anna"}
	newer := map[string]string{"defaults.retry.spread": "1", "types.mail.retry.strategy": "fibonacci", "types.bill.retry.base": "0s"}
	var changes []store.SettingChange
	for key, value := range newer {
		changes = append(changes, store.SettingChange{Action: store.ActionSet, Key: key, Value: &value})
	}
	if _, err := b.Store.ChangeSettings(t.Context(), anna, 0, changes); err != nil {
		t.Fatal(err)
	}
	want := maps.Clone(newer)
	for _, c := range []struct {
		name   string
		change app.SettingsRequest
		want   error
		after  func()
	}{
		{"another setting", app.SettingsRequest{Set: map[string]string{"defaults.timeout": "1m"}}, nil, func() { want["defaults.timeout"] = "1m" }},
		{"another setting of such a type", app.SettingsRequest{Set: map[string]string{"types.mail.timeout": "1m"}}, nil, func() { want["types.mail.timeout"] = "1m" }},
		{"the queue of notices", app.SettingsRequest{Set: map[string]string{"types.mail.queue": "calls"}}, holdfast.ErrInvalid, nil},
		{"the queue of notices as default", app.SettingsRequest{Set: map[string]string{"defaults.queue": "calls"}}, holdfast.ErrInvalid, nil},
		{"one of two keys is unknown", app.SettingsRequest{Set: map[string]string{"defaults.timeout": "2m"}, Unset: []string{"nosuch"}}, holdfast.ErrInvalid, nil},
		{"a key that is not stored", app.SettingsRequest{Unset: []string{"types.mail.queue"}}, holdfast.ErrNotFound, nil},
		{"an unknown key", app.SettingsRequest{Unset: []string{"defaults.retry.spread"}}, nil, func() { delete(want, "defaults.retry.spread") }},
		{"a value that does not fit", app.SettingsRequest{Unset: []string{"types.bill.retry.base"}}, nil, func() { delete(want, "types.bill.retry.base") }},
	} {
		if _, err := b.ChangeSettings(t.Context(), anna, c.change); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if c.after != nil {
			c.after()
		}
		now, err := b.ReadSettings(t.Context())
		if err != nil || !maps.Equal(now.Values, want) {
			t.Errorf("%s: the settings are %v, %v; want %v", c.name, now.Values, err, want)
		}
	}
}
