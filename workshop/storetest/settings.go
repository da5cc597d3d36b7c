package storetest

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

var settingTests = []test{
	{"keeps settings with a version", testStoredSettings},
	{"returns no values for a known version", testKnownSettings},
	{"records each change of a setting", testSettingsAreAudited},
	{"a change of a setting without a difference is not recorded", testSettingNoDifference},
	{"changes all settings of a call or none", testSettingsRefused},
	{"keeps any text of a setting", testSettingText},
	{"of several people with the same version one changes the settings", testSettingsRace},
	{"creates a secret once", testSecret},
	{"several callers get the same secret", testSecretRace},
}

func (s *suite) storedSettings(known int64) store.StoredSettings {
	s.Helper()
	stored, err := s.StoredSettings(s.ctx, known)
	s.must(err)
	return stored
}

// set returns the change that sets a setting.
func set(key, value string) store.SettingChange {
	return store.SettingChange{Action: store.ActionSet, Key: key, Value: &value}
}

// unset returns the change that removes a setting.
func unset(key string) store.SettingChange {
	return store.SettingChange{Action: store.ActionUnset, Key: key}
}

// changeSettings makes changes to the current version.
func (s *suite) changeSettings(changes ...store.SettingChange) (version int64) {
	s.Helper()
	version, err := s.ChangeSettings(s.ctx, anna, s.storedSettings(-1).Version, changes)
	s.must(err)
	return version
}

func testStoredSettings(s *suite) {
	if empty := s.storedSettings(-1); empty.Version != 0 || empty.Values == nil || len(empty.Values) != 0 {
		s.Errorf("an empty store has the settings %+v", empty)
	}
	first := s.changeSettings(set("defaults.timeout", "10s"), set("types.a.b.queue", "mail"))
	want := map[string]string{"defaults.timeout": "10s", "types.a.b.queue": "mail"}
	if got := s.storedSettings(0); got.Version != first || first == 0 || !maps.Equal(got.Values, want) {
		s.Errorf("the settings are %+v, want %v with version %d", got, want, first)
	}
	second := s.changeSettings(set("defaults.timeout", "20s"), unset("types.a.b.queue"), set("types.a.timeout", "1s"))
	want = map[string]string{"defaults.timeout": "20s", "types.a.timeout": "1s"}
	if got := s.storedSettings(first); got.Version != second || second <= first || !maps.Equal(got.Values, want) {
		s.Errorf("the settings are %+v, want %v with version %d", got, want, second)
	}
	third := s.changeSettings(unset("defaults.timeout"), unset("types.a.timeout"))
	if got := s.storedSettings(second); got.Version != third || third <= second || got.Values == nil || len(got.Values) != 0 {
		s.Errorf("after all settings were removed, they are %+v, want version %d", got, third)
	}
	// A version is not used again if the store loses commits: it is a time, not a count.
	recent := slow.Patience().Microseconds()
	if now := s.now().UnixMicro(); first < now-recent || third > now+recent {
		s.Errorf("the versions %d and %d are not near the time %d", first, third, now)
	}
}

func testKnownSettings(s *suite) {
	if got := s.storedSettings(0); got.Version != 0 || got.Values != nil {
		s.Errorf("for the known version 0: %+v", got)
	}
	version := s.changeSettings(set("defaults.timeout", "10s"))
	if got := s.storedSettings(version); got.Version != version || got.Values != nil {
		s.Errorf("for the known version %d: %+v", version, got)
	}
	if got := s.storedSettings(version + 1); got.Version != version || len(got.Values) != 1 { // the store has lost the newer one
		s.Errorf("for a later version: %+v", got)
	}
}

func testSettingsAreAudited(s *suite) {
	s.changeSettings(set("defaults.timeout", "10s"))
	s.changeSettings(set("defaults.timeout", "20s"), set("types.a.timeout", "1s"))
	s.changeSettings(store.SettingChange{Action: store.ActionUndo, Key: "defaults.timeout", Value: new("10s")})
	s.changeSettings(unset("defaults.timeout"))
	entries := s.auditLog(store.AuditFilter{Subject: store.SettingSubject("defaults.timeout")})
	var got []string
	for _, e := range entries {
		before, after := strings.ReplaceAll(string(e.Before), " ", ""), strings.ReplaceAll(string(e.After), " ", "")
		got = append(got, fmt.Sprintf("%s %s %s %s", e.Action, e.Subject, before, after))
		if e.Actor != anna || e.Task != 0 || e.At.IsZero() {
			s.Errorf("entry %+v", e)
		}
	}
	want := []string{
		`unset setting defaults.timeout {"value":"10s"} `,
		`undo setting defaults.timeout {"value":"20s"} {"value":"10s"}`,
		`set setting defaults.timeout {"value":"10s"} {"value":"20s"}`,
		`set setting defaults.timeout  {"value":"10s"}`,
	}
	if strings.ReplaceAll(strings.Join(got, "\n"), "null", "") != strings.Join(want, "\n") {
		s.Errorf("the audit log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if all := s.auditLog(store.AuditFilter{}); len(all) != 5 {
		s.Errorf("the audit log has %d entries, want 5", len(all))
	}
}

func testSettingNoDifference(s *suite) {
	first := s.changeSettings(set("defaults.timeout", "10s"))
	for _, changes := range [][]store.SettingChange{{set("defaults.timeout", "10s")}, {unset("defaults.queue")}, {}} {
		if version := s.changeSettings(changes...); version != first {
			s.Errorf("the changes %+v have the version %d, want %d", changes, version, first)
		}
	}
	if entries := s.auditLog(store.AuditFilter{}); len(entries) != 1 {
		s.Errorf("entries: %+v", entries)
	}
	long := anna
	long.Reason = strings.Repeat("x", 5_000)
	if _, err := s.ChangeSettings(s.ctx, long, first, nil); !errors.Is(err, holdfast.ErrInvalid) {
		s.Errorf("a reason that is too long: %v", err)
	}
}

func testSettingsRefused(s *suite) {
	first := s.changeSettings(set("defaults.timeout", "10s"))
	second := s.changeSettings(set("defaults.timeout", "20s"))
	long := anna
	long.Name = strings.Repeat("x", 5_000)
	for _, c := range []struct {
		name    string
		by      store.Actor
		seen    int64
		changes []store.SettingChange
		want    error
	}{
		{"an older version", anna, first, []store.SettingChange{set("defaults.queue", "mail")}, holdfast.ErrConflict},
		{"a later version", anna, second + 1, []store.SettingChange{set("defaults.queue", "mail")}, holdfast.ErrConflict},
		{"an older version without a difference", anna, 0, nil, holdfast.ErrConflict},
		{"no key", anna, second, []store.SettingChange{set("defaults.queue", "mail"), set("", "1")}, holdfast.ErrInvalid},
		{"a long key", anna, second, []store.SettingChange{set("defaults.queue", "mail"), set(strings.Repeat("k", 301), "1")}, holdfast.ErrInvalid},
		{"a long value", anna, second, []store.SettingChange{set("defaults.queue", "mail"), set("defaults.timeout", strings.Repeat("1", 10_001))}, holdfast.ErrInvalid},
		{"a key twice", anna, second, []store.SettingChange{set("defaults.queue", "mail"), unset("defaults.queue")}, holdfast.ErrInvalid},
		{"a bad actor", long, second, []store.SettingChange{set("defaults.queue", "mail")}, holdfast.ErrInvalid},
	} {
		if _, err := s.ChangeSettings(s.ctx, c.by, c.seen, c.changes); !errors.Is(err, c.want) {
			s.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if got := s.storedSettings(-1); got.Version != second || !maps.Equal(got.Values, map[string]string{"defaults.timeout": "20s"}) {
			s.Errorf("%s: the settings are %+v", c.name, got)
		}
	}
	if entries := s.auditLog(store.AuditFilter{}); len(entries) != 2 {
		s.Errorf("%d entries, want 2", len(entries))
	}
}

func testSettingText(s *suite) {
	for _, value := range []string{"", "'; drop table settings; --", "10s\n\t<é>", strings.Repeat("1", 10_000)} {
		s.changeSettings(set("defaults.timeout", value))
		if got := s.storedSettings(-1).Values["defaults.timeout"]; got != value {
			s.Errorf("the value %.60q is %.60q", value, got)
		}
	}
	s.changeSettings(set("defaults.timeout", "a\x00b\xff"))
	if got := s.storedSettings(-1).Values["defaults.timeout"]; got != "a\uFFFDb\uFFFD" {
		s.Errorf("a value with bytes that no column stores is %q", got)
	}
}

// testSettingsRace lets several people change settings that they have seen at the same version. One of them wins. The
// audit log has the changes of the winners, and each entry continues the previous one.
func testSettingsRace(s *suite) {
	const people, rounds = 4, 5
	for round := range rounds {
		seen := s.storedSettings(-1).Version
		var race sync.WaitGroup
		made := make([]bool, people)
		for person := range people {
			race.Go(func() {
				_, err := s.ChangeSettings(s.ctx, anna, seen, []store.SettingChange{set("defaults.timeout", fmt.Sprintf("%d.%d", round, person))})
				if made[person] = err == nil; err != nil && !errors.Is(err, holdfast.ErrConflict) {
					s.Errorf("round %d: %v", round, err)
				}
			})
		}
		race.Wait()
		winners := 0
		for person, won := range made {
			if won {
				winners++
				if got := s.storedSettings(-1).Values["defaults.timeout"]; got != fmt.Sprintf("%d.%d", round, person) {
					s.Errorf("round %d: person %d has won, the value is %s", round, person, got)
				}
			}
		}
		if entries := s.auditLog(store.AuditFilter{}); winners != 1 || len(entries) != round+1 {
			s.Fatalf("round %d: %d people have won, the audit log has %d entries", round, winners, len(entries))
		}
	}
}

func (s *suite) secret(name string, create func() string) string {
	s.Helper()
	secret, err := s.Secret(s.ctx, name, create)
	s.must(err)
	return secret
}

func testSecret(s *suite) {
	never := func() string {
		s.Error("a secret that exists is created")
		return "another"
	}
	for _, name := range []string{"test_first", "test_second"} {
		if got := s.secret(name, func() string { return "secret of " + name }); got != "secret of "+name {
			s.Errorf("%s is created as %q", name, got)
		}
	}
	s.changeSettings(set("test_first", "10s"))
	for _, name := range []string{"test_first", "test_second"} {
		if got := s.secret(name, never); got != "secret of "+name {
			s.Errorf("%s is %q", name, got)
		}
	}
	// It is in no list that people read.
	if values := s.storedSettings(-1).Values; !maps.Equal(values, map[string]string{"test_first": "10s"}) {
		s.Errorf("the settings are %v", values)
	}
	if entries := s.auditLog(store.AuditFilter{}); len(entries) != 1 {
		s.Errorf("the audit log has %+v", entries)
	}
}

// testSecretRace lets several callers create a secret at the same time.
func testSecretRace(s *suite) {
	const callers, rounds = 8, 5
	for round := range rounds {
		name := fmt.Sprint("test_", round)
		var race sync.WaitGroup
		var got [callers]string
		for caller := range callers {
			race.Go(func() {
				var err error
				if got[caller], err = s.Secret(s.ctx, name, func() string { return fmt.Sprint("secret ", caller) }); err != nil {
					s.Errorf("round %d: %v", round, err)
				}
			})
		}
		race.Wait()
		want := s.secret(name, func() string { return "too late" })
		for caller, secret := range got {
			if secret != want || secret == "" || secret == "too late" {
				s.Errorf("round %d: caller %d has the secret %q, a later one has %q", round, caller, secret, want)
			}
		}
	}
}
