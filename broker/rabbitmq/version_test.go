package rabbitmq

import (
	"errors"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/holdfastq/holdfast"
)

func TestVersionsAreJudged(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]struct {
		grade holdfast.Grade
		text  string
	}{
		"3.9.29":        {holdfast.GradeFailed, "dead-letter"},
		"3.10.8":        {holdfast.GradeWarning, "out of community support"},
		"3.13.7":        {holdfast.GradeWarning, "out of community support"},
		"4.0.5":         {holdfast.GradeWarning, "out of community support"},
		"4.2.10":        {holdfast.GradeWarning, "upgrade to 4.3.5"},
		"4.3.0":         {holdfast.GradeWarning, "known defects"},
		"4.3.4":         {holdfast.GradeWarning, "known defects"},
		"4.3.5":         {holdfast.GradeOK, ""},
		"4.3.12":        {holdfast.GradeOK, ""},
		"4.4.0-beta.1":  {holdfast.GradeWarning, "newer than 4.3"},
		"5.0.0":         {holdfast.GradeWarning, "newer than 4.3"},
		"4.3.5+abcdef1": {holdfast.GradeOK, ""},
		"unknown":       {holdfast.GradeWarning, "cannot be read"},
		"4":             {holdfast.GradeWarning, "cannot be read"},
	} {
		got := judgeVersion("RabbitMQ", version, "host:5672")
		if got.Grade != want.grade || !strings.Contains(got.Detail+got.Remedy, want.text) || (got.Grade == holdfast.GradeOK) != (got.Remedy == "") {
			t.Errorf("%s: %+v", version, got)
		}
	}
	if got := judgeVersion("OtherMQ", "4.3.5", "host:5672"); got.Grade != holdfast.GradeWarning || !strings.Contains(got.Detail, "not RabbitMQ") {
		t.Errorf("another product: %+v", got)
	}
}

func TestAbilitiesAreJudged(t *testing.T) {
	t.Parallel()
	all := amqp.Table{}
	for _, name := range abilities {
		all[name] = true
	}
	if got := judgeAbilities(all); got.Grade != holdfast.GradeOK {
		t.Errorf("%+v", got)
	}
	delete(all, "basic.nack")
	if got := judgeAbilities(all); got.Grade != holdfast.GradeFailed || !strings.HasSuffix(got.Detail, "lacks basic.nack") {
		t.Errorf("%+v", got)
	}
	if got := judgeAbilities(nil); got.Grade != holdfast.GradeFailed {
		t.Errorf("%+v", got)
	}
}

// The texts are those of 3.10.8 and 4.0.5.
func TestDifferencesAreRead(t *testing.T) {
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
