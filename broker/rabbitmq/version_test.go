package rabbitmq

import (
	"errors"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/doctor"
)

func TestVersionsAreChecked(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]struct {
		severity doctor.Severity
		text     string
	}{
		"3.9.29":        {doctor.Failed, "dead-letter"},
		"3.10.8":        {doctor.Warning, "no community support"},
		"3.13.7":        {doctor.Warning, "no community support"},
		"4.0.5":         {doctor.Warning, "no community support"},
		"4.2.10":        {doctor.Warning, "upgrade to 4.3.5"},
		"4.3.0":         {doctor.Warning, "known defects"},
		"4.3.4":         {doctor.Warning, "known defects"},
		"4.3.5":         {doctor.OK, ""},
		"4.3.12":        {doctor.OK, ""},
		"4.4.0-beta.1":  {doctor.Warning, "newer than 4.3"},
		"5.0.0":         {doctor.Warning, "newer than 4.3"},
		"4.3.5+abcdef1": {doctor.OK, ""},
		"unknown":       {doctor.Warning, "cannot be parsed"},
		"4":             {doctor.Warning, "cannot be parsed"},
	} {
		got := checkVersion("RabbitMQ", version, "host:5672")
		if got.Severity != want.severity || !strings.Contains(got.Detail+got.Remedy.Arg, want.text) || (got.Severity == doctor.OK) != (got.Remedy == holdfast.Hint{}) {
			t.Errorf("%s: %+v", version, got)
		}
	}
	if got := checkVersion("OtherMQ", "4.3.5", "host:5672"); got.Severity != doctor.Warning || !strings.Contains(got.Detail, "not RabbitMQ") {
		t.Errorf("another product: %+v", got)
	}
}

func TestCapabilitiesAreChecked(t *testing.T) {
	t.Parallel()
	all := amqp.Table{}
	for _, name := range requiredCapabilities {
		all[name] = true
	}
	if got := checkCapabilities(all); got.Severity != doctor.OK {
		t.Errorf("%+v", got)
	}
	delete(all, "basic.nack")
	if got := checkCapabilities(all); got.Severity != doctor.Failed || !strings.HasSuffix(got.Detail, "lacks basic.nack") {
		t.Errorf("%+v", got)
	}
	if got := checkCapabilities(nil); got.Severity != doctor.Failed {
		t.Errorf("%+v", got)
	}
}

// The error texts are those of RabbitMQ 3.10.8 and 4.0.5.
func TestDifferencesAreParsed(t *testing.T) {
	t.Parallel()
	const before, after = "PRECONDITION_FAILED - inequivalent arg ", " for queue 'a' in vhost '/': received "
	for text, want := range map[string]struct {
		name  string
		value any
		ok    bool
	}{
		before + "'x-queue-type'" + after + "'quorum' but current is 'stream'":                                        {"x-queue-type", "stream", true},
		before + "'x-dead-letter-exchange'" + after + "the value '' of type 'longstr' but current is none":            {"x-dead-letter-exchange", nil, true},
		before + "'x-message-ttl'" + after + "none but current is the value '1000' of type 'long'":                    {"x-message-ttl", int64(1000), true},
		before + "'x-delivery-limit'" + after + "the value '1000' of type 'long' but current is none":                 {"x-delivery-limit", nil, true},
		before + "'x-overflow'" + after + "'reject-publish' but current is 'drop-head'":                               {"x-overflow", "drop-head", true},
		before + "'x-dead-letter-exchange'" + after + "none but current is the value '17' of type 'longstr'":          {"x-dead-letter-exchange", "17", true},
		before + "'durable'" + after + "'true' but current is 'false'":                                                {"durable", "false", false},
		"PRECONDITION_FAILED - invalid arg 'x-max-priority' for queue 'a' in vhost '/' of queue type some_queue_type": {"", nil, false},
	} {
		name, value, ok := readDifference(errors.New(text))
		if name != want.name || value != want.value || ok != want.ok {
			t.Errorf("%s: %q %#v %t", text, name, value, ok)
		}
	}
}
