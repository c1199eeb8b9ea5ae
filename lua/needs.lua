-- needs: which commands of our scripts the server refuses on a key of ours; writes nothing.
--
-- ARGV    1 a key of our form that is not there: an argument, so that every node of a cluster can be
--           asked, whichever has its slot
-- reply   now, integer ms since the epoch by the server's clock, or -1 if TIME is refused; then of
--         each command that failed: its name, and why:
--           "command"  the user may not run it
--           "key"      the user may run it, and not on such a key
--           else the first word of the error, such as READONLY, MISCONF, OOM
-- cost    O(1)
--
-- A refusal by the ACL is the first thing that a server looks at. Its text differs from version to
-- version, and so does whether it begins with NOPERM.

local tries = {
  { "TIME" },
  { "GET", ARGV[1] },
  { "PTTL", ARGV[1] },
  { "SET", ARGV[1], "", "XX", "PX", 1 }, -- XX: only over what is there
  { "DEL", ARGV[1] },
}

local function why(err)
  if not (string.find(err, "permission") or string.find(err, "executing the script")) then
    -- Redis 6 says first where it was: "@user_script: 31: -OOM command not allowed".
    return string.match(err, "^-?(%u+)") or string.match(err, ": %-(%u+)") or "ERR"
  end
  return string.find(err, "run th") and "command" or "key" -- no user's name has a blank in it
end

local reply = { -1 }
for _, try in ipairs(tries) do
  local answer = redis.pcall(unpack(try))
  if type(answer) == "table" and answer.err then
    reply[#reply + 1] = try[1]
    reply[#reply + 1] = why(answer.err)
  elseif try[1] == "TIME" then
    reply[1] = answer[1] * 1000 + math.floor(answer[2] / 1000)
  end
end
return reply
