package postgres

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/doctor"
)

// The test uses no server, because most of these settings hold for a whole server.
func TestSettingsAreChecked(t *testing.T) {
	t.Parallel()
	sound := map[string]string{"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "statement_timeout": "30000"}
	with := func(pairs ...string) map[string]string {
		all := maps.Clone(sound)
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i]] = pairs[i+1]
		}
		return all
	}
	for name, c := range map[string]struct {
		state    serverState
		check    func(serverState) doctor.Check
		severity doctor.Severity
		text     string
	}{
		"a beta version":        {serverState{version: "18beta1"}, serverState.versionCheck, doctor.OK, "PostgreSQL 18beta1"},
		"a version of Debian":   {serverState{version: "15.14 (Debian 15.14-0+deb12u1)"}, serverState.versionCheck, doctor.OK, "15.14"},
		"too old":               {serverState{version: "12.22"}, serverState.versionCheck, doctor.Failed, "13 or later"},
		"an unknown version":    {serverState{version: "?"}, serverState.versionCheck, doctor.OK, "?"},
		"primary":               {serverState{settings: sound}, serverState.primaryCheck, doctor.OK, ""},
		"standby":               {serverState{settings: sound, standby: true}, serverState.primaryCheck, doctor.Failed, "primary"},
		"read-only":             {serverState{settings: with("default_transaction_read_only", "on")}, serverState.primaryCheck, doctor.Failed, "read-only"},
		"durable":               {serverState{settings: sound}, serverState.durabilityCheck, doctor.OK, ""},
		"no fsync":              {serverState{settings: with("fsync", "off")}, serverState.durabilityCheck, doctor.Failed, "fsync"},
		"asynchronous":          {serverState{settings: with("synchronous_commit", "off")}, serverState.durabilityCheck, doctor.Failed, "accepted last"},
		"torn pages":            {serverState{settings: with("full_page_writes", "off")}, serverState.durabilityCheck, doctor.Warning, "full_page_writes"},
		"local":                 {serverState{settings: with("synchronous_commit", "local", "synchronous_standby_names", "*")}, serverState.durabilityCheck, doctor.Warning, "replicas"},
		"local, no replicas":    {serverState{settings: with("synchronous_commit", "local")}, serverState.durabilityCheck, doctor.OK, ""},
		"asynchronous replicas": {serverState{settings: sound, replicas: 2}, serverState.durabilityCheck, doctor.Warning, "synchronous_standby_names"},
		"a synchronous replica": {serverState{settings: sound, replicas: 2, synced: 1}, serverState.durabilityCheck, doctor.OK, ""},
		"direct":                {serverState{settings: with()}, serverState.poolerCheck, doctor.OK, "session of its own"},
		"lent":                  {serverState{settings: standard, pooling: lentSession}, serverState.presenceCheck, doctor.Warning, "direct_url"},
		"present":               {serverState{settings: standard, pooling: lentSession, sessions: true}, serverState.presenceCheck, doctor.OK, "at once"},
		"lent, direct too":      {serverState{settings: standard, pooling: lentSession, sessions: true}, serverState.poolerCheck, doctor.OK, "tracks"},
		"lent, not set":         {serverState{settings: standard.with(settings{"jit": "on"}), pooling: lentSession, sessions: true, role: "app"}, serverState.poolerCheck, doctor.Warning, "lack jit = 'off' session_settings \"app\""},
	} {
		got := c.check(c.state)
		if got.Severity != c.severity || !strings.Contains(fmt.Sprint(got.Detail, " ", got.Remedy.Kind, " ", got.Remedy.Arg), c.text) || (got.Severity == doctor.OK) != (got.Remedy == holdfast.Hint{}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
