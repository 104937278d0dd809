package method

import (
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/units/jsonrpc"
)

func invalidParams(format string, args ...any) error {
	return jsonrpc.Errorf(mcp.INVALID_PARAMS, format, args...)
}

// onlyInSessions is the error of methods that since 2026-07-28 there are others for.
func onlyInSessions(instead string) error {
	return jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: since protocol %s it is %s", mcp.ProtocolVersion20260728, instead)
}
