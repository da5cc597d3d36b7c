package pgclient

import (
	"io"
	"testing"

	"github.com/lib/pq"
	"github.com/sirupsen/logrus"
)

// The driver does not read the versions of TLS from the environment, and refuses variables that this program ignores.
func TestTheEnvironmentSetsParameters(t *testing.T) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	t.Setenv("PGSSLMINPROTOCOLVERSION", "TLSv1.3")
	t.Setenv("PGSSLMAXPROTOCOLVERSION", "TLSv1.3")
	t.Setenv("PGCHANNELBINDING", "require")
	t.Setenv("PGSSLNEGOTIATION", "direct")
	to, err := parse("postgres://a@h/db?sslmode=require&ssl_max_protocol_version=TLSv1.2", log)
	if err != nil {
		t.Fatal(err)
	}
	if c := to.config; c.SSLMinProtocolVersion != "TLSv1.3" || c.SSLMaxProtocolVersion != "TLSv1.2" || c.SSLNegotiation != pq.SSLNegotiationDirect {
		t.Errorf("the connection has %q, %q and %q", c.SSLMinProtocolVersion, c.SSLMaxProtocolVersion, c.SSLNegotiation)
	}
}
