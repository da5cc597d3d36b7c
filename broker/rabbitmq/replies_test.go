package rabbitmq_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/rabbitmq"
	"github.com/holdfastq/holdfast/workshop/rabbittest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// The hint follows the text of a reply, because one code has several causes.
func TestHintsOfReplies(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"NOT_ALLOWED - connection refused for user 'app': user connection limit (1) is reached":                                        "rabbitmqctl set_user_limits USER",
		"NOT_ALLOWED - access to vhost '/' refused for user 'app': connection limit (1) is reached":                                    "rabbitmqctl set_vhost_limits -p VHOST",
		"NOT_ALLOWED - connection refused: node connection limit (5) is reached":                                                       "connection_max",
		"NOT_ALLOWED - number of channels opened for user 'app' has reached the maximum allowed user limit of (2)":                     "max-channels",
		"NOT_ALLOWED - number of channels opened (8) has reached the negotiated channel_max (8)":                                       "channel_max",
		"PRECONDITION_FAILED - cannot declare queue 'q': queue limit in vhost '/' (0) is reached":                                      "max-queues",
		"PRECONDITION_FAILED - cannot declare queue 'q': queue limit in cluster (10) is reached":                                       "cluster_queue_limit",
		"PRECONDITION_FAILED - cannot declare exchange 'x': exchange limit of 9 is reached":                                            "cluster_exchange_limit",
		"NOT_ALLOWED - vhost shop not found":                                                                                           "the virtual host",
		"NOT_ALLOWED - access to vhost '/shop' refused for user 'app'":                                                                 "set_permissions -p VHOST",
		"INTERNAL_ERROR - access to vhost '/shop' refused for user 'app': vhost '/shop' is down":                                       "restart_vhost",
		"ACCESS_REFUSED - configure access to queue 'q' in vhost '/' refused for user 'app'":                                           "configure and read permission",
		"ACCESS_REFUSED - user 'guest' can only connect via localhost":                                                                 "the user guest",
		"PRECONDITION_FAILED - message size 150000000 is larger than configured max size 134217728":                                    "max_message_size",
		"NOT_ALLOWED - something else limit (3) is reached":                                                                            "raise that limit",
		"PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received 'quorum' but current is 'classic'": "",
	} {
		err := rabbitmq.Plain(530, text)
		if got := holdfast.HintOf(err).Arg; err.Error() != text || want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%v: the hint is %q, want %q", err, got, want)
		}
		if dialed := rabbitmq.DialError(530, text); want != "" && holdfast.HintOf(dialed) != holdfast.HintOf(err) || !strings.Contains(dialed.Error(), "mq:5672") {
			t.Errorf("%v: the hint is %q", dialed, holdfast.HintOf(dialed).Arg)
		}
	}
	if got := holdfast.HintOf(rabbitmq.DialError(403, "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN.")); got.Arg != "user, password and virtual host" {
		t.Errorf("a refused login: %+v", got)
	}
}

func testLimits(t *testing.T, server *rabbittest.Server) {
	b := rabbittest.OpenWith(t, server.URL, rabbitmq.Options{})
	must(t, b.Ping(ctx(t), slow.Patience()))
	server.Ctl("set_vhost_limits", "-p", "/", `{"max-queues": 0}`)
	err := b.Declare(ctx(t), []broker.Object{{Kind: broker.Queue, Name: "one-too-many"}})
	server.Ctl("clear_vhost_limits", "-p", "/")
	if errors.Is(err, holdfast.ErrConflict) || !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(holdfast.HintOf(err).Arg, "max-queues") {
		t.Errorf("the limit of queues: %v, %+v", err, holdfast.HintOf(err))
	}
	server.Ctl("set_user_limits", "guest", `{"max-connections": 0}`)
	defer server.Ctl("clear_user_limits", "guest", "all")
	other, err := rabbitmq.Open(t.Context(), rabbitmq.Options{URLs: []string{server.URL}, DialTimeout: slow.Patience()})
	must(t, err)
	defer other.Close()
	err = other.Ping(ctx(t), time.Nanosecond) // waits for the refusal
	if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(holdfast.HintOf(err).Arg, "set_user_limits") {
		t.Errorf("the limit of connections: %v, %+v", err, holdfast.HintOf(err))
	}
}
