package postgres

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/doctor"
	"github.com/holdfastq/holdfast/store/postgres/pgclient"
)

// The test uses no server, because most of these settings apply to a whole server.
func TestSettingsAreChecked(t *testing.T) {
	t.Parallel()
	sound := pgclient.Parameters{"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "statement_timeout": "30000"}
	with := func(pairs ...string) pgclient.Parameters {
		all := maps.Clone(sound)
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i]] = pairs[i+1]
		}
		return all
	}
	standard := make(pgclient.Parameters)
	for _, lacking := range standard.Lacking() { // as in: jit = 'off'
		name, value, _ := strings.Cut(lacking, " = ")
		standard[name] = strings.Trim(value, "'")
	}
	compiled := maps.Clone(standard)
	compiled["jit"] = "on"
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
		"primary":               {serverState{parameters: sound}, serverState.primaryCheck, doctor.OK, ""},
		"standby":               {serverState{parameters: sound, standby: true}, serverState.primaryCheck, doctor.Failed, "primary"},
		"read-only":             {serverState{parameters: with("default_transaction_read_only", "on")}, serverState.primaryCheck, doctor.Failed, "read-only"},
		"durable":               {serverState{parameters: sound}, serverState.durabilityCheck, doctor.OK, ""},
		"no fsync":              {serverState{parameters: with("fsync", "off")}, serverState.durabilityCheck, doctor.Failed, "fsync"},
		"asynchronous":          {serverState{parameters: with("synchronous_commit", "off")}, serverState.durabilityCheck, doctor.Failed, "accepted last"},
		"torn pages":            {serverState{parameters: with("full_page_writes", "off")}, serverState.durabilityCheck, doctor.Warning, "full_page_writes"},
		"local":                 {serverState{parameters: with("synchronous_commit", "local", "synchronous_standby_names", "*")}, serverState.durabilityCheck, doctor.Warning, "replicas"},
		"local, no replicas":    {serverState{parameters: with("synchronous_commit", "local")}, serverState.durabilityCheck, doctor.OK, ""},
		"asynchronous replicas": {serverState{parameters: sound, replicas: 2}, serverState.durabilityCheck, doctor.Warning, "synchronous_standby_names"},
		"a synchronous replica": {serverState{parameters: sound, replicas: 2, synced: 1}, serverState.durabilityCheck, doctor.OK, ""},
		"direct":                {serverState{parameters: with()}, serverState.poolerCheck, doctor.OK, "session of its own"},
		"lent":                  {serverState{parameters: standard, pooled: true}, serverState.presenceCheck, doctor.Warning, "direct_url"},
		"present":               {serverState{parameters: standard, pooled: true, sessions: true}, serverState.presenceCheck, doctor.OK, "at once"},
		"lent, direct too":      {serverState{parameters: standard, pooled: true, sessions: true}, serverState.poolerCheck, doctor.OK, "tracks"},
		"lent, not set":         {serverState{parameters: compiled, pooled: true, sessions: true, role: "app"}, serverState.poolerCheck, doctor.Warning, "lack jit = 'off' session_settings \"app\""},
	} {
		got := c.check(c.state)
		if got.Severity != c.severity || !strings.Contains(fmt.Sprint(got.Detail, " ", got.Remedy.Kind, " ", got.Remedy.Arg), c.text) || (got.Severity == doctor.OK) != (got.Remedy == holdfast.Hint{}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
