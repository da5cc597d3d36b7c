package pgclient_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
)

// The hint of a TLS error is about sslmode and certificates, not about the password.
func TestErrorsOfTLSDoNotHintAtThePassword(t *testing.T) {
	t.Parallel()
	https := httptest.NewTLSServer(nil) // provides a certificate that no client trusts
	defer https.Close()
	for answer, want := range map[string]string{"S": "certificate", "N": "SSL is not enabled"} {
		server, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		go func() {
			for {
				conn, err := server.Accept()
				if err != nil {
					return
				}
				_, _ = io.ReadFull(conn, make([]byte, 8)) // the client requests TLS
				_, _ = io.WriteString(conn, answer)
				_ = tls.Server(conn, &tls.Config{Certificates: https.TLS.Certificates}).Handshake()
				_ = conn.Close()
			}
		}()
		_, err = open(t.Context(), "postgres://somebody:secret@"+server.Addr().String()+"/app?sslmode=verify-full", nil)
		hint := holdfast.HintOf(err)
		if err == nil || !strings.Contains(err.Error(), want) || hint.Kind != holdfast.HintCheckDatabase || !strings.HasPrefix(hint.Arg, "sslmode") || strings.Contains(hint.Arg, "password") {
			t.Errorf("%s: %v, %+v", answer, err, hint)
		}
	}
}
